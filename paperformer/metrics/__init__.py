"""Metrics as modules of the evaluate library, which loads them from the installed package: no network is needed."""

from pathlib import Path

from ..training.console.input_error import InputError
from ..training.console.suggestions import suggest

NAMES = ("bleu", "chrf", "ter", "exact_match", "perplexity")


def metric_path(name: str) -> str:
    """The file that `evaluate.load` takes for a metric, one of `NAMES`.

    Raises:
        InputError: if there is no such metric.
    """
    if name not in NAMES:
        *others, last = NAMES
        hint = suggest(name, NAMES, f"it must be {', '.join(others)} or {last}")
        raise InputError(f"there is no metric {name}; {hint}")
    return str(Path(__file__).with_name(f"{name}.py"))
