"""JSON Lines: one JSON object a line, with the text in one or two of its values."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from ...console.input_error import InputError
from ..text.bad_lines import BadLines
from ..text.chunks import chunks_of_rows
from ..text.files import find_file, open_binary
from ..text.line_ranges import line_ranges
from ..text.lines import BLOCK_BYTES, read_lines
from .reader import FileFormat, FileReader, list_names

# Numbers are never used, and Python refuses to make an integer of more than 4300 digits.
_DECODER = json.JSONDecoder(parse_int=float)
_KINDS = {
    type(None): "null",
    bool: "a truth value",
    float: "a number",
    list: "a list",
    dict: "an object",
    str: "a string",
}


@dataclass(frozen=True, kw_only=True)
class JsonLines(FileReader):
    """One key of the objects, of which each value is a document, or two: source and target.

    Lines of white space are no rows. Of a key that an object has twice, the last counts.
    """

    columns: tuple[str, ...]
    """One or two keys; `translation.en` is the key `en` of the object `translation`, unless that very key is there."""

    domain: str | None = field(default=None, repr=False)
    """The key whose value says the domain of each row."""

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The values of each object."""
        return chunks_of_rows(self.rows(bad), has_domain=self.domain is not None)

    def rows(self, bad: BadLines) -> Iterator[tuple[str, ...]]:
        """The values of each object."""
        path, columns = find_file(self.path), self.columns + (() if self.domain is None else (self.domain,))
        _refuse_list(path)
        lines = enumerate(read_lines(path, bad, part=self.part), start=self.part.first_line if self.part else 1)
        filled = ((number, line) for number, line in lines if line is None or not (not line or line.isspace()))
        for number, line in self.require_any(filled, "one JSON object a line"):
            if line is None:
                continue
            try:
                row = _parse(line)
                values = tuple([_value(row, column) for column in columns])
                if "\\u" in line:
                    _check_escapes(values)
            except _BadRowError as error:
                bad.report(f"{path}, line {number}", error.reason, str(error))
            else:
                yield values

    def divide(self, lines: int) -> Sequence[Self]:
        """Parts by lines."""
        return self.parts(line_ranges(find_file(self.path), lines))


JSON_LINES = FileFormat(
    name="jsonl",
    endings=(".jsonl", ".ndjson"),
    reader=lambda path, request: JsonLines(path=path, columns=request.column_names, domain=request.domain_name),
    has_columns=True,
)


class _BadRowError(Exception):
    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


def _refuse_list(path: Path) -> None:
    with open_binary(path) as file:
        start = file.read(BLOCK_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"["):
        raise InputError(
            f"{path} is a JSON list; it must be JSON Lines, with one object a line and nothing around them"
        )


def _parse(line: str) -> dict[str, Any]:
    try:
        row = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        detail = f"column {error.colno} is not JSON ({error.msg}); a line must be one JSON object"
        raise _BadRowError("not JSON", detail) from error
    except RecursionError as error:
        raise _BadRowError("nested too deeply", "its lists or objects are nested too deeply") from error
    if not isinstance(row, dict):
        raise _BadRowError("not an object", f"it is {_kind(row)}; a line must be one JSON object")
    return row


def _value(row: dict[str, Any], column: str) -> str:
    value = row[column] if column in row else _nested_value(row, column)
    if not isinstance(value, str):
        raise _BadRowError("not a string", f"'{column}' is {_kind(value)}; it must be a string")
    return value


def _nested_value(row: dict[str, Any], column: str) -> Any:
    value: Any = row
    for key in column.split("."):
        if not isinstance(value, dict):
            raise _BadRowError("key missing", f"there is no '{column}': '{key}' is looked for in {_kind(value)}")
        if key not in value:
            raise _BadRowError(
                "key missing", f"there is no '{column}': '{key}' is not among the keys {list_names(value)}"
            )
        value = value[key]
    return value


def _kind(value: Any) -> str:
    return _KINDS[type(value)]


def _check_escapes(values: tuple[str, ...]) -> None:
    """Refuses what the bytes of a file cannot hold, but `\\uXXXX` can."""
    for value in values:
        if "\0" in value:
            raise _BadRowError("NUL byte", "\\u0000 is NUL; a text has none")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            code = ord(value[error.start])
            detail = f"\\u{code:04x} is half of a surrogate pair; the other half is missing"
            raise _BadRowError("lone surrogate", detail) from error
