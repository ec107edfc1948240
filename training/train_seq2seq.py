"""Train a translation model: accelerate launch -m paperformer.training.train_seq2seq --config RECIPE [overrides]."""

from functools import partial
from pathlib import Path

from ..configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from .corpora import pair_splits
from .options.data import ParallelData
from .recipe import parse_recipe
from .run import Job, main, run
from .translation import TranslationTask


def seq2seq_job(arguments: list[str]) -> Job:
    """What a recipe for an encoder-decoder asks for."""
    recipe = parse_recipe(arguments, PaperformerSeq2SeqConfig, ParallelData, prog="train_seq2seq", description=__doc__)
    return Job(
        recipe, partial(pair_splits, recipe), partial(TranslationTask, recipe), max_length=recipe.data.max_length
    )


def train_seq2seq(arguments: list[str], command: str) -> Path:
    """Carries out a recipe for an encoder-decoder; returns the finished model's folder."""
    return run(seq2seq_job(arguments), command)


if __name__ == "__main__":
    main(train_seq2seq, "paperformer.training.train_seq2seq")
