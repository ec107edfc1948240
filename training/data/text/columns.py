"""Columns of text that a library has read: which of their values are text that can be used."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .bad_lines import BadLines


def good_rows(
    columns: Mapping[str, pa.Array], place: str, rows_before: int, bad: BadLines, longest: int | None = None
) -> list[pa.StringArray]:
    """The columns, without the rows that cannot be used.

    Args:
        columns: name -> strings, (N,), which may be null, and whose bytes may be anything.
        place: what they come from, for messages.
        rows_before: how many rows of it have come before these.
        bad: what to do with a row of which a value is null, not UTF-8, has a NUL byte or is too long.
        longest: bytes that a value may have.

    Raises:
        InputError: for the first bad row, if those are not to be left out.
    """
    suspects = np.logical_or.reduce([_suspects(column, longest) for column in columns.values()])
    is_good = np.ones(len(suspects), np.bool_)
    contents = {name: column.cast(pa.large_binary()) for name, column in columns.items()} if suspects.any() else {}
    for row in np.flatnonzero(suspects).tolist():
        for name, content in contents.items():
            if fault := _fault(content[row].as_py(), longest):
                reason, detail = fault
                bad.report(f"{place}, row {rows_before + row + 1}", reason, f"column '{name}' {detail}")
                is_good[row] = False
                break
    kept = columns.values() if is_good.all() else [column.filter(pa.array(is_good)) for column in columns.values()]
    return [column.cast(pa.string()) for column in kept]


def _suspects(column: pa.Array, longest: int | None) -> NDArray[np.bool_]:
    """The rows among which those are that cannot be used: (N,)."""
    try:
        column.validate(full=True)  # Parquet files are read without a look at their text
    except pa.ArrowInvalid:  # not UTF-8
        return np.ones(len(column), np.bool_)
    suspects = pc.match_substring(column, "\0")
    if longest is not None:
        suspects = pc.or_(suspects, pc.greater(pc.binary_length(column), longest))
    return np.asarray(suspects.fill_null(True))


def _fault(value: bytes | None, longest: int | None) -> tuple[str, str] | None:
    """The reason and the detail of what keeps a value from being text."""
    if value is None:
        return "null", "is null; it must be a string"
    if longest is not None and len(value) > longest:
        return "line too long", f"has more than {longest:,} bytes; it must be a sentence or a document"
    if 0 in value:
        return "NUL byte", f"has NUL at byte {value.index(0) + 1}; a text has none"
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return "not UTF-8", f"has byte 0x{value[error.start]:02x} at byte {error.start + 1}, which is not UTF-8"
    return None
