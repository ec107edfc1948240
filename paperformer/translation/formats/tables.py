"""Tables of tab-separated or comma-separated values: the same rows, with a column more, or with one replaced.

Fields that are not translated are written as the bytes that they were, quotes and spaces included.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...training.console.input_error import InputError
from ...training.data.readers.reader import list_names
from ..line_source import LONGEST_LINE, decode
from .marked_text import MarkedText, text_of
from .raw_lines import OVERLONG, RawLine, raw_lines
from .records import Record, Written, kept

_SEPARATORS = {"tsv": (b"\t",), "csv": (b",", b";", b"\t")}
_NOT_CLOSED = "its quote is not closed: not translated"
_NOT_CSV = "a quoted field goes on behind its closing quote (quotes inside are to be doubled): not translated"


_LEFT = {OVERLONG: "too long", _NOT_CLOSED: "not CSV", _NOT_CSV: "not CSV"}
_QUOTED = re.compile(rb'(?:[^"]|"")*+')


@dataclass(frozen=True)
class Row:
    """A row as it is in the file."""

    number: int
    fields: list[bytes]
    mark: bytes
    end: bytes
    fault: str = ""
    """Why its fields are not those that were meant."""


@dataclass(frozen=True)
class Columns:
    """What a command says of a table's columns."""

    source: str
    """Name in the header, or number from 1."""

    target: str = "translation"
    """Where translations go: the same. A name that the header does not have is that of a new column, the last."""

    header: bool | None = None
    """Whether the first row names the columns; None: if `source` is no number."""


def read_table(read: Callable[[int], bytes], name: str, kind: str, columns: Columns) -> Iterator[Record]:
    """The rows of a table, of which one column is translated.

    Args:
        read: gives its bytes.
        name: of the file, for messages.
        kind: `tsv`: a row is a line, a quote is a character like any other, as corpora write them; `csv`: RFC 4180,
            with commas, or with semicolons or tabs where so the header has the column.
        columns: which.

    Raises:
        InputError: if there is no such column, or several are called so.
    """
    lines = raw_lines(read, name)
    first_line = next((line for line in lines), None)
    if first_line is None:
        return
    has_header = columns.header if columns.header is not None else not columns.source.isdecimal()
    separator = _find_separator(first_line, _SEPARATORS[kind], columns.source)
    rows = _csv_rows(first_line, lines, separator) if kind == "csv" else _tsv_rows(first_line, lines)
    table: _Table | None = None
    for row in rows:
        if isinstance(row, Record):
            yield row
        elif table is None:
            names = [_value(field, kind, []) for field in row.fields] if has_header else None
            table = _Table(name, kind, separator, len(row.fields), names, columns)
            yield table.header(row) if has_header else table.record(row)
        else:
            yield table.record(row)


def _find_separator(line: RawLine, separators: Sequence[bytes], column: str) -> bytes:
    """The first by which a header has the column, or a first row one of that number."""
    for separator in separators:
        fields = [field.strip(b' "') for field in line.content.split(separator)]
        if column.encode() in fields or (column.isdecimal() and len(fields) >= int(column)):
            return separator
    return separators[0]


@dataclass
class _Table:
    name: str
    kind: str
    separator: bytes
    width: int
    names: list[str] | None
    columns: Columns

    def __post_init__(self) -> None:
        self.source = self._find(self.columns.source)
        target = self.columns.target
        is_there = target in (self.names or []) or target.isdecimal()
        self.target = self._find(target) if is_there else self.width
        """The place from 0; the width, if it is a new column."""

    def _find(self, column: str) -> int:
        names = self.names or []
        if names.count(column) == 1:
            return names.index(column)
        listed = f"its columns are {list_names(names)}" if names else f"its first row has {self.width}"
        if column in names:
            raise InputError(f"{self.name} has several columns '{column}'; give a number")
        if column.isdecimal() and 1 <= int(column) <= self.width:
            return int(column) - 1
        if not column:
            raise InputError(
                f"{self.name}: which column is to be translated? Give --column NAME, or a number from 1 if there is no "
                f"header; {listed}"
            )
        raise InputError(f"{self.name} has no column '{column}'; {listed}")

    def header(self, row: Row) -> Record:
        if self.target < self.width:
            return kept(self._join(row, row.fields), row.number)
        return kept(self._join(row, [*row.fields, self._field(self.columns.target)]), row.number)

    def record(self, row: Row) -> Record:
        size = sum(map(len, row.fields))
        if row.fault:
            content = self._join(row, [*row.fields, b""] if self.target == self.width else row.fields)
            return kept(content, row.number, left=_LEFT[row.fault], faults=[row.fault])
        if row.fields == [b""] and self.width > 1:  # an empty line, which readers of tables pass over
            return kept(self._join(row, row.fields), row.number, left="empty")
        faults: list[str] = []
        if len(row.fields) != self.width:
            faults.append(f"columns: {len(row.fields)}, and the first row has {self.width}")
        if self.source >= len(row.fields):
            faults[0] += ": not translated"
            return Record(row.number, size, lambda _: Written(self._write(row, "")), (), faults, "without the column")
        source = _value(row.fields[self.source], self.kind, faults)
        marked = MarkedText([source])

        def write(translations: Sequence[str]) -> Written:
            tokens = marked.fill(translations)
            return Written(self._write(row, text_of(tokens)), marked.review(tokens))

        faults += marked.faults
        return Record(row.number, size, write, marked.texts, faults, "" if marked.texts else "empty")

    def _write(self, row: Row, translation: str) -> bytes:
        fields = row.fields + [b""] * (max(self.width, self.target) - len(row.fields))
        if self.target == self.width:
            fields.insert(self.target, self._field(translation))  # before what a row has too much
        else:
            fields[self.target] = self._field(translation)
        return self._join(row, fields)

    def _field(self, text: str) -> bytes:
        if self.kind == "tsv":
            return text.replace("\t", " ").encode()
        content = text.encode()
        is_quoted = any(sign in content for sign in (self.separator, b'"', b"\r", b"\n"))
        return b'"' + content.replace(b'"', b'""') + b'"' if is_quoted else content

    def _join(self, row: Row, fields: Sequence[bytes]) -> bytes:
        return row.mark + self.separator.join(fields) + row.end


def _value(field: bytes, kind: str, faults: list[str]) -> str:
    if kind == "csv" and field.startswith(b'"'):
        field = field[1:-1].replace(b'""', b'"')
    return decode(field, faults)


def _tsv_rows(first: RawLine, lines: Iterator[RawLine]) -> Iterator[Row | Record]:
    line: RawLine | None = first
    while line is not None:
        if line.is_part:
            yield kept(line.raw, line.number)
        else:
            fields = line.content.split(b"\t")
            yield Row(line.number, fields, line.mark, line.end, OVERLONG if line.is_overlong else "")
        line = next(lines, None)


def _csv_rows(first: RawLine, lines: Iterator[RawLine], separator: bytes) -> Iterator[Row | Record]:
    """Rows of one or several lines. A line whose quote is never closed is one by itself."""
    waiting = deque([first])
    while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
        if line.is_part:
            yield kept(line.raw, line.number)
            continue
        if line.is_overlong:
            yield Row(line.number, [line.content], line.mark, line.end, OVERLONG)
            continue
        row = _RowParts(separator)
        used = [line]
        fault = ""
        while row.feed(line):
            following = waiting.popleft() if waiting else next(lines, None)
            if following is None or following.is_part or row.size > LONGEST_LINE:
                waiting.extendleft([] if following is None else [following])
                fault = _NOT_CLOSED
                break
            used.append(line := following)
        if fault or row.is_bad:
            waiting.extendleft(reversed(used[1:]))
            first = used[0]
            yield Row(first.number, [first.content], first.mark, first.end, fault or _NOT_CSV)
        else:
            yield Row(used[0].number, row.fields(), used[0].mark, line.end)


class _RowParts:
    """A row of comma-separated values that comes line by line, and where its fields end."""

    def __init__(self, separator: bytes):
        self.size = 0
        """Bytes so far."""
        self.is_bad = False
        """Whether something follows a closing quote."""
        self._separator = separator
        self._parts: list[bytes] = []
        self._cuts: list[int] = []
        self._end = 0
        self._is_open = False

    def feed(self, line: RawLine) -> bool:
        """Takes a line of the row; whether the row goes on in the next."""
        text, place = line.content, 0
        start, self.size = self.size, self.size + len(text) + len(line.end)
        self._parts.append(text + line.end)
        while True:
            if self._is_open or text[place : place + 1] == b'"':
                place += not self._is_open
                place = len(_QUOTED.match(text, place)[0]) + place  # type: ignore[index]  # it matches anything
                self._is_open = place == len(text)
                if self._is_open:
                    return True
                place += 1
                if not text.startswith(self._separator, place) and place < len(text):
                    self.is_bad = True
                    return False
            else:
                found = text.find(self._separator, place)
                place = len(text) if found < 0 else found
            if place == len(text):
                self._end = start + place
                return False
            self._cuts.append(start + place)
            place += 1

    def fields(self) -> list[bytes]:
        """What is between the separators."""
        content = b"".join(self._parts)
        starts = [0, *(cut + 1 for cut in self._cuts)]
        return [content[start:end] for start, end in zip(starts, [*self._cuts, self._end], strict=True)]
