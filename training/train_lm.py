"""Train a language model: accelerate launch -m paperformer.training.train_lm --config RECIPE [overrides]."""

from pathlib import Path

from ..configuration.configuration_lm import PaperformerLMConfig
from .corpora import read_documents
from .language_modeling import LanguageModelingTask
from .recipe import TextData, parse_recipe
from .run import main, run


def train_lm(arguments: list[str], command: str) -> Path:
    """Carries out a recipe for a decoder-only model; returns the finished model's folder."""
    recipe = parse_recipe(arguments, PaperformerLMConfig, TextData, prog="train_lm", description=__doc__)
    documents = read_documents(recipe.data)
    return run(
        recipe,
        [line for text in documents["train"] for line in text.splitlines(keepends=True)],
        lambda tokenizer: LanguageModelingTask(recipe, documents, tokenizer),
        append_eos=False,
        max_length=None,
        command=command,
    )


if __name__ == "__main__":
    main(train_lm, "paperformer.training.train_lm")
