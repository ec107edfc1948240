"""Text that ships with the package, as sources like any other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from ..cldr import expression_pairs
from ..input_error import InputError
from ..shakespeare import play_splits
from .bad_lines import BadLines
from .chunks import chunks_of_rows

Text = TypeVar("Text")


@dataclass(frozen=True, kw_only=True)
class BuiltInPairs:
    """Localised expressions of Unicode CLDR, for any pair of its locales (see `cldr`)."""

    dataset: str
    split: str
    languages: tuple[str, str]

    @property
    def name(self) -> str:
        """As recipes write it."""
        return f"built-in:{self.dataset}"

    def files(self) -> list[Path]:
        """None that could change while the package is installed."""
        if self.dataset != "cldr":
            raise InputError(f"there is no {self.name} of sentence pairs; there is built-in:cldr")
        return []

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The pairs of the split."""
        try:
            splits = _expressions(*self.languages)
        except ValueError as error:
            raise InputError(f"data.source_language, data.target_language: {error}") from error
        yield from chunks_of_rows(_split(splits, self.split, self.name))


@dataclass(frozen=True, kw_only=True)
class BuiltInText:
    """Shakespeare's plays, each a document (see `shakespeare`)."""

    dataset: str
    split: str

    @property
    def name(self) -> str:
        """As recipes write it."""
        return f"built-in:{self.dataset}"

    def files(self) -> list[Path]:
        """None that could change while the package is installed."""
        if self.dataset != "shakespeare":
            raise InputError(f"there is no {self.name} of running text; there is built-in:shakespeare")
        return []

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The plays of the split."""
        yield from chunks_of_rows((play,) for play in _split(play_splits(), self.split, self.name))


@cache  # one reader for each split asks for the same pairs, which take seconds to make
def _expressions(source: str, target: str) -> dict[str, list[tuple[str, str]]]:
    return expression_pairs(source, target)


def _split(splits: Mapping[str, Sequence[Text]], split: str, name: str) -> Sequence[Text]:
    if split not in splits:
        raise InputError(f"{name} has no split '{split}'; it has {', '.join(splits)}")
    return splits[split]
