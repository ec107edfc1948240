"""Tables in plain text that stay aligned whatever the script: widths are those that a terminal shows."""

import shutil
import unicodedata
from collections.abc import Collection, Mapping, Sequence

from ftfy.formatting import display_ljust, display_rjust, monospaced_width

NARROWEST, WIDEST = 80, 120
"""Columns that a table may take, at least and at most."""

GAP = "  "


def find_screen_width() -> int:
    """Columns of the terminal, or of the variable COLUMNS, within what tables take; 100 where there is none."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((100, 24)).columns))


def measure_width(rows: Sequence[Sequence[str]]) -> int:
    """Columns that rows take with their cells below one another."""
    return sum(_column_widths(rows)) + len(GAP) * (len(rows[0]) - 1)


def align_rows(
    rows: Sequence[Sequence[str]], *, right: Collection[int] = (), widest: Mapping[int, int] | None = None
) -> str:
    """Rows as lines, their cells below one another.

    Args:
        rows: all of the same length.
        right: numbers of the columns that are aligned by their ends.
        widest: column -> how wide it may be at most; longer cells go on in the next line.
    """
    lines = [line for row in rows for line in _wrapped_row(row, widest or {})]
    widths = _column_widths(lines)
    return "\n".join(
        GAP.join(
            display_rjust(cell, width) if column in right else display_ljust(cell, width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def make_printable(text: str) -> str:
    """The text with a sign for every character that would break a line up: line ends, tabs, lone surrogates."""
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c for c in text)


def _wrapped_row(row: Sequence[str], widest: Mapping[int, int]) -> list[list[str]]:
    """The lines of a row."""
    cells = [_wrapped(make_printable(cell), widest.get(column)) for column, cell in enumerate(row)]
    height = max(map(len, cells))
    return [[cell[line] if line < len(cell) else "" for cell in cells] for line in range(height)]


def _wrapped(text: str, width: int | None) -> list[str]:
    pieces = [""]
    for character in text:
        if width is not None and monospaced_width(pieces[-1] + character) > width:
            pieces.append("")
        pieces[-1] += character
    return pieces


def _column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(monospaced_width(make_printable(cell)) for cell in column) for column in zip(*rows, strict=True)]
