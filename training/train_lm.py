"""Train a language model: accelerate launch -m paperformer.training.train_lm --config RECIPE [overrides]."""

from functools import partial
from pathlib import Path

from ..configuration.configuration_lm import PaperformerLMConfig
from .corpora import text_splits
from .language_modeling import LanguageModelingTask
from .options.data import TextData
from .recipe import parse_recipe
from .run import Job, main, run


def lm_job(arguments: list[str]) -> Job:
    """What a recipe for a decoder-only model asks for."""
    recipe = parse_recipe(arguments, PaperformerLMConfig, TextData, prog="train_lm", description=__doc__)
    return Job(recipe, partial(text_splits, recipe), partial(LanguageModelingTask, recipe), max_length=None)


def train_lm(arguments: list[str], command: str) -> Path:
    """Carries out a recipe for a decoder-only model; returns the finished model's folder."""
    return run(lm_job(arguments), command)


if __name__ == "__main__":
    main(train_lm, "paperformer.training.train_lm")
