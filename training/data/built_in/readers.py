"""Text that ships with the package, as sources like any other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from ...console.input_error import InputError
from ..text.bad_lines import BadLines
from ..text.chunks import chunks_of_rows
from .cldr import expression_pairs
from .shakespeare import play_splits

Text = TypeVar("Text")


@dataclass(frozen=True, kw_only=True)
class _BuiltIn:
    dataset: str
    split: str

    @property
    def name(self) -> str:
        """As recipes write it."""
        return f"built-in:{self.dataset}"

    def _find(self, known: str, content: str) -> list[Path]:
        if self.dataset != known:
            raise InputError(f"there is no {self.name} of {content}; there is built-in:{known}")
        return []

    def _part(self, splits: Mapping[str, Sequence[Text]]) -> Sequence[Text]:
        if self.split not in splits:
            raise InputError(f"{self.name} has no split '{self.split}'; it has {', '.join(splits)}")
        return splits[self.split]


@dataclass(frozen=True, kw_only=True)
class BuiltInPairs(_BuiltIn):
    """Localised expressions of Unicode CLDR, for any pair of its locales (see `cldr`)."""

    languages: tuple[str, str]

    def files(self) -> list[Path]:
        """None that could change while the package is installed."""
        return self._find("cldr", "sentence pairs")

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The pairs of the split."""
        try:
            splits = _expressions(*self.languages)
        except ValueError as error:
            raise InputError(f"data.source_language, data.target_language: {error}") from error
        yield from chunks_of_rows(self._part(splits))


@dataclass(frozen=True, kw_only=True)
class BuiltInText(_BuiltIn):
    """Shakespeare's plays, each a document (see `shakespeare`)."""

    def files(self) -> list[Path]:
        """None that could change while the package is installed."""
        return self._find("shakespeare", "running text")

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The plays of the split."""
        yield from chunks_of_rows((play,) for play in self._part(play_splits()))


@cache  # one reader for each split asks for the same pairs, which take seconds to make
def _expressions(source: str, target: str) -> dict[str, list[tuple[str, str]]]:
    return expression_pairs(source, target)
