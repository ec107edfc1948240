"""Tables of runs from Python."""

import os
from collections.abc import Mapping
from typing import Any

from ..sweeps.carrying_out import carry_out
from ..sweeps.options import read_options
from ..sweeps.rows import make_sweep
from ..sweeps.table import SweepTable
from ..training.run import make_quiet
from .recipes import to_words


def sweep(given: str | os.PathLike[str] | Mapping[str, Any] | None = None, **options: Any) -> SweepTable:
    """Trains a table of runs that differ in some fields of their recipe, and compares them by their validation scores.

    Called again with the same after an interruption, it goes on: finished runs are not repeated.

    Args:
        given: a sweep's file; the name of one that ships with the package; or its fields as a mapping.
        options: fields of the sweep (`SweepOptions`) that are to have another value: `base`, `rows` or `grid`, `seeds`,
            `overrides`, `score`, `name`, `output_dir`, `test` and so on.

    Raises:
        InputError: if the sweep or one of its recipes is wrong, before anything is trained.
        TrainingStopped, KeyboardInterrupt: if it was interrupted.
    """
    fields = {**(given if isinstance(given, Mapping) else {}), **options}
    words = [f"--{word.removeprefix('--')}" for word in _joined(fields)]
    if given is not None and not isinstance(given, Mapping):
        words.insert(0, os.fspath(given))
    make_quiet()
    return carry_out(make_sweep(*read_options(words)))


def _joined(fields: Mapping[str, Any]) -> list[str]:
    """Each field as one word, so that no value is taken for an option."""
    return ["=".join(to_words({name: value})) for name, value in fields.items()]
