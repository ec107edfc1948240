"""Tables: text in the columns of a file of tab-separated or comma-separated values."""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Literal, Self, TypeGuard

import pyarrow as pa

from ...console.input_error import InputError
from ..text.bad_lines import BadLines
from ..text.chunks import chunks_of_rows
from ..text.files import find_file
from ..text.line_ranges import line_ranges
from ..text.lines import LONGEST_LINE, read_lines
from .reader import Columns, FileFormat, FileReader, Request, list_names, require_any

Row = tuple[int, list[str] | None]
"""The number of a row's first line, and its values; None if it is left out."""

_SEPARATORS = {"\t": "tabs", ",": "commas"}
_NOT_CSV = (
    "the row is not CSV as in RFC 4180: a closing quote must be followed by a comma or the end of the line, quotes "
    "inside quotes must be doubled, and a carriage return must be inside quotes"
)


@dataclass(frozen=True, kw_only=True)
class Table(FileReader):
    """One column of a table, of which each row is a document, or two: source and target.

    Tab-separated values are taken as corpora write them: a row is a line, and a quote is a character like any other.
    Comma-separated values are those of RFC 4180; a Windows line end inside quotes becomes a line feed.

    Raises:
        InputError: if a column's number is below 1, or if one is asked for by name and there is no header.
    """

    columns: Columns
    """One or two columns: names of the header, or numbers from 1. The other columns are ignored."""

    delimiter: Literal["\t", ","]
    """What separates the columns."""

    header: bool | None = None
    """Whether the first row names the columns; None: if a column is asked for by name, or it has all of `names`."""

    names: tuple[str, ...] = ()
    """What the columns are called in a header, as many; then they may be others than `columns`."""

    domain: str | int | None = field(default=None, repr=False)
    """The column that says the domain of each row."""

    def __post_init__(self) -> None:
        for column in self._all_columns:
            if isinstance(column, int) and column < 1:
                raise InputError(f"{self.path} has no column {column}; columns are numbered from 1")
            if isinstance(column, str) and self.header is False:
                raise InputError(f"{self.path} has no header to name a column '{column}'; give its number, from 1")

    @property
    def _all_columns(self) -> Columns:
        return self.columns if self.domain is None else (*self.columns, self.domain)

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The rows."""
        return chunks_of_rows(self.rows(bad), has_domain=self.domain is not None)

    def rows(self, bad: BadLines) -> Iterator[tuple[str, ...]]:
        """The rows. A bad row of several lines, which are CSV, counts as that many bad lines."""
        path = find_file(self.path)
        lines = read_lines(path, bad, part=self.part)
        first_line = self.part.first_line if self.part else 1
        rows = _csv_rows(lines, path, bad) if self.delimiter == "," else _tsv_rows(lines, first_line)
        indices, rows = self._below_header(rows, path)
        pick, needed = _picker(indices), max(indices) + 1
        for number, values in self.require_any(rows, "rows (below its header, if it has one)"):
            if values is None:
                continue
            if len(values) < needed:
                detail = f"columns: {len(values)}; there must be at least {needed}, separated by "
                bad.report(f"{path}, line {number}", "too few columns", detail + _SEPARATORS[self.delimiter])
                continue
            yield pick(values)

    def divide(self, lines: int) -> Sequence[Self]:
        """Parts by lines, of tab-separated values; a row of comma-separated ones may have several."""
        path = find_file(self.path)
        if self.delimiter == "," or self.domain is not None or len(ranges := line_ranges(path, lines)) < 2:
            return [self]
        first_rows = _tsv_rows(islice(read_lines(path, BadLines(skip=True)), 2))
        indices, _ = self._below_header(first_rows, path)
        columns = tuple(index + 1 for index in indices)
        first, *others = self.parts(ranges)
        return [first, *(replace(other, columns=columns, header=False, names=()) for other in others)]

    def _below_header(self, rows: Iterator[Row], path: Path) -> tuple[list[int], Iterator[Row]]:
        """Where the columns are, counted from 0, and the rows without a header."""
        first = next(rows, None)
        if first is not None and self._is_header(first[1]):
            indices = [first[1].index(name) for name in self.names]
            return indices + ([] if self.domain is None else [_index(self.domain, first[1], path)]), rows
        rows = chain([] if first is None else [first], rows)
        return self._indices(rows, path), rows

    def _is_header(self, row: list[str] | None) -> TypeGuard[list[str]]:
        """Whether a first row has all the names, once each: as a pair it would say that one is the other's name."""
        return row is not None and len(self.names) > 1 and all(row.count(name) == 1 for name in self.names)

    def _indices(self, rows: Iterator[Row], path: Path) -> list[int]:
        """Where the columns are, counted from 0; takes the header off the rows."""
        if not (self.header or any(isinstance(column, str) for column in self._all_columns)):
            return [int(column) - 1 for column in self._all_columns]
        _, header = next(require_any(rows, path, "a header, and rows below it"))
        if header is None:
            raise InputError(f"{path}: its header cannot be read; the first row must name the columns")
        return [_index(column, header, path) for column in self._all_columns]


def _index(column: str | int, header: list[str], path: Path) -> int:
    if isinstance(column, int):
        if column <= len(header):
            return column - 1
        fault = f"no column {column}"
    else:
        if header.count(column) == 1:
            return header.index(column)
        fault = f"several columns '{column}'; give a number" if column in header else f"no column '{column}'"
    raise InputError(f"{path} has {fault}; its columns are {list_names(header)}")


def _picker(indices: list[int]) -> Callable[[list[str]], tuple[str, ...]]:
    if len(indices) > 1:
        return itemgetter(*indices)
    (index,) = indices
    return lambda values: (values[index],)


def _tsv_rows(lines: Iterator[str | None], first_line: int = 1) -> Iterator[Row]:
    return ((number, None if line is None else line.split("\t")) for number, line in enumerate(lines, first_line))


def _csv_rows(lines: Iterator[str | None], path: Path, bad: BadLines) -> Iterator[Row]:
    # The library's own limit of a value is an eighth of ours. It holds for the whole process, so it is only raised.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    row = _RowLines(lines)
    reader = csv.reader(row, strict=True)
    while True:
        row.begin()
        try:
            values = next(reader, None)
        except csv.Error as error:
            is_unclosed = isinstance(error, _QuoteNotClosedError)
            for number in range(row.first, row.first + row.count):
                place = f"{path}, line {number}"
                if is_unclosed:
                    bad.report(place, "quote not closed", str(error))
                else:
                    bad.report(place, "not CSV", _NOT_CSV)
            yield row.first, None
        else:
            if values is None:
                return
            yield row.first, values or [""]  # the library has no value for an empty line, RFC 4180 an empty one


def _tsv_reader(path: Path, request: Request) -> Table:
    first_columns = tuple(range(1, len(request.names) + 1))
    names = () if request.columns else request.names
    return Table(
        path=path, columns=request.columns or first_columns, delimiter="\t", names=names, domain=request.domain
    )


def _csv_reader(path: Path, request: Request) -> Table:
    return Table(path=path, columns=request.columns or request.names, delimiter=",", domain=request.domain)


TSV = FileFormat(name="tsv", endings=(".tsv",), reader=_tsv_reader, has_columns=True)
CSV = FileFormat(name="csv", endings=(".csv",), reader=_csv_reader, has_columns=True)


class _QuoteNotClosedError(csv.Error):
    pass


class _RowLines:
    """Hands lines to `csv.reader`, which asks for more while a quote is open, and stops it before memory fills."""

    def __init__(self, lines: Iterator[str | None]):
        self.first = 1
        """The number of the row's first line."""
        self.count = 0
        """How many of its lines were handed over."""
        self._lines = lines
        self._next = 1
        self._characters = 0

    def begin(self) -> None:
        """Begins another row."""
        self.first, self.count, self._characters = self._next, 0, 0

    def __iter__(self) -> "_RowLines":
        return self

    def __next__(self) -> str:
        try:
            line = next(self._lines)
        except StopIteration:
            if self.count:
                raise self._not_closed("before the end of the file") from None
            raise
        self._next += 1
        if line is None:
            raise self._not_closed("before a bad line")
        self.count += 1
        self._characters += len(line) + 1
        if self.count > 1 and self._characters > LONGEST_LINE:
            raise self._not_closed(f"within {LONGEST_LINE:,} characters")
        return f"{line}\n"

    def _not_closed(self, where: str) -> _QuoteNotClosedError:
        return _QuoteNotClosedError(
            f"the quote opened in the row that begins on line {self.first} is not closed {where}"
        )
