"""Commands that make models: plan one, train one, and see both kinds trained."""

from pathlib import Path


def quickstart(fast: bool = False, output_dir: str = "runs/quickstart") -> None:
    """Train two small models from data that ships with the package, score them, load them back, and use them.

    Args:
        fast: Train for seconds only, to see that everything works.
        output_dir: Folder for the two runs; earlier ones of the quickstart are replaced.
    """
    from ..quickstart import run_quickstart

    run_quickstart(Path(output_dir), fast=fast)


def train_seq2seq(*arguments: str) -> None:
    """Train an encoder-decoder to translate; --help lists every field of its recipes."""
    from ..training.run import main as run_training
    from ..training.train_seq2seq import train_seq2seq as run_recipe

    run_training(run_recipe, "paperformer.training.train_seq2seq", list(arguments))


def train_lm(*arguments: str) -> None:
    """Train a decoder-only language model; --help lists every field of its recipes."""
    from ..training.run import main as run_training
    from ..training.train_lm import train_lm as run_recipe

    run_training(run_recipe, "paperformer.training.train_lm", list(arguments))


def plan(*arguments: str) -> None:
    """Work out what a model costs before it is trained: paperformer plan --preset NAME [overrides]."""
    from ..plan import main as print_plan

    print_plan(list(arguments))


def prepare_seq2seq(*arguments: str) -> None:
    """Read, clean and tokenise the sentence pairs of a recipe, and report; --help lists every field."""
    from ..training.prepare import main as run_prepare
    from ..training.train_seq2seq import seq2seq_job

    run_prepare(seq2seq_job, list(arguments))


def prepare_lm(*arguments: str) -> None:
    """Read, clean and tokenise the running text of a recipe, and report; --help lists every field."""
    from ..training.prepare import main as run_prepare
    from ..training.train_lm import lm_job

    run_prepare(lm_job, list(arguments))
