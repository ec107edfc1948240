"""What every source of text looks like to the rest of the package, and what readers of files have in common.

A format of files is a reader and a `FileFormat`, in one module; the list `FORMATS` of `sources.py` names it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import Literal, Protocol, Self, TypeVar, runtime_checkable

import pyarrow as pa

from ...console.input_error import InputError
from ..text.bad_lines import BadLines
from ..text.chunks import chunks_of_rows
from ..text.files import find_file
from ..text.line_ranges import LineRange

Item = TypeVar("Item")

Documents = Literal["joined", "each", "blank_line"]
Columns = tuple[str | int, ...]


class Reader(Protocol):
    """One source of text: a file, a pair of files, a folder, or a data set of the Hub.

    Making a reader touches no file. Reading it again gives the same chunks again.
    """

    @property
    def name(self) -> str:
        """What to call it in messages and reports."""

    def files(self) -> list[Path]:
        """The local files that are read, for noticing changes; none of a data set of the Hub.

        Raises:
            InputError: if one is missing.
        """

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The text, in chunks (see `chunks`).

        Args:
            bad: what to do with lines that cannot be used.

        Raises:
            InputError: if it cannot be read, or has a bad line that is not to be left out.
        """


@runtime_checkable
class Divisible(Protocol):
    """A `Reader` of what can be read from the middle."""

    def divide(self, lines: int) -> Sequence[Reader]:
        """Readers of the parts, in order, of so many lines or somewhat more; one at least.

        A part begins with a document. All of them together tell of as many bad lines, at the same places.

        Raises:
            InputError: if it cannot be read.
        """


def divide(reader: Reader, lines: int) -> Sequence[Reader]:
    """Readers of parts of some lines each, or the one of all where parts cannot be read by themselves."""
    return reader.divide(lines) if isinstance(reader, Divisible) else [reader]


@dataclass(frozen=True, kw_only=True)
class FileReader:
    """A `Reader` of one file. A format says what its rows are; or, if it is a folder's, its files and chunks."""

    path: Path
    """The file. It may be compressed, also where the ending of the compression is not given here."""

    part: LineRange | None = field(default=None, repr=False)
    """The lines to read, if not all, of a format that is divided by lines."""

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def files(self) -> list[Path]:
        """The file."""
        return [find_file(self.path)]

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The rows."""
        return chunks_of_rows(self.rows(bad))

    def rows(self, bad: BadLines) -> Iterator[tuple[str, ...]]:
        """Pairs of source and target, or texts alone, each of which is a document."""
        raise NotImplementedError

    def parts(self, ranges: Sequence[LineRange]) -> Sequence[Self]:
        """Readers of these lines each; this one if they are all of them."""
        return [replace(self, part=part) for part in ranges] if len(ranges) > 1 else [self]

    def require_any(self, items: Iterable[Item], needed: str) -> Iterator[Item]:
        """As the function of this name; of a part of a file nothing is required."""
        return iter(items) if self.part else require_any(items, self.path, needed)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a recipe asks of a file, besides its path."""

    names: tuple[str, ...]
    """The languages' codes for sentence pairs; for running text, what its column is called by default."""

    columns: Columns | None = None
    """The columns that the source names, as many."""

    documents: Documents | None = None
    """What the rows of running text are."""

    domain: str | int | None = None
    """The column that says the domain of each row."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of a format that has them by name."""
        return tuple(map(str, self.columns or self.names))

    @property
    def domain_name(self) -> str | None:
        """The column of the domain, of such a format."""
        return None if self.domain is None else str(self.domain)


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """A format of files, as a recipe names it."""

    name: str

    endings: tuple[str, ...]
    """Of its files, without that of a compression."""

    reader: Callable[[Path, Request], Reader]

    has_pairs: bool = True
    """Whether sentence pairs can be read from it."""

    has_text: bool = True
    """Whether running text can be read from it."""

    divides_documents: bool = False
    """Whether a file may be one document or several, so that `documents` is for it; else every row is one."""

    has_columns: bool = False
    """Whether a column may say the domain of each row."""

    in_folders: str | None = None
    """Which files below a folder are read as one source, as `Path.glob` takes it; None if only a file can be given."""


def require_any(items: Iterable[Item], path: Path, needed: str) -> Iterator[Item]:
    """The items of a file.

    Raises:
        InputError: if there are none. It says what is needed.
    """
    items = iter(items)
    for first in items:
        return chain([first], items)
    raise InputError(f"{path} is empty; it must have {needed}")


def list_names(names: Iterable[str]) -> str:
    """Names for a message, of which the first few are enough."""
    return shorten(", ".join(map(repr, names)), width=300, placeholder=" ...") or "(none)"
