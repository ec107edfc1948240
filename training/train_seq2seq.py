"""Train a translation model: accelerate launch -m paperformer.training.train_seq2seq --config RECIPE [overrides]."""

from itertools import chain
from pathlib import Path

from ..configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from .corpora import read_pairs
from .recipe import ParallelData, parse_recipe
from .run import main, run
from .translation import TranslationTask


def train_seq2seq(arguments: list[str], command: str) -> Path:
    """Carries out a recipe for an encoder-decoder; returns the finished model's folder."""
    recipe = parse_recipe(arguments, PaperformerSeq2SeqConfig, ParallelData, prog="train_seq2seq", description=__doc__)
    pairs = read_pairs(recipe.data)
    return run(
        recipe,
        list(chain.from_iterable(pairs["train"])),
        lambda tokenizer: TranslationTask(recipe, pairs, tokenizer),
        append_eos=True,
        max_length=recipe.data.max_length,
        command=command,
    )


if __name__ == "__main__":
    main(train_seq2seq, "paperformer.training.train_seq2seq")
