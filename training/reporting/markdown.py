"""Pieces of Markdown: rows of tables, tables, and blocks of text that is not to be read as Markdown."""

import re
from collections.abc import Collection, Iterable, Sequence


def markdown_row(*cells: str) -> str:
    """A table row, in which the cells' own Markdown and HTML is shown and not interpreted."""
    shown = (re.sub(r"([\\`*_\[\]<>|~#&$])", r"\\\1", " ".join(cell.split())) for cell in cells)
    return f"| {' | '.join(shown)} |"


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """A table.

    Args:
        titles: of the columns.
        rows: a cell for each column.
        right: numbers of the columns that are flush right, counted from 0.
    """
    rule = "".join("---:|" if column in right else "---|" for column in range(len(titles)))
    return "\n".join([markdown_row(*titles), f"|{rule}", *(markdown_row(*row) for row in rows)])


def fenced(text: str, language: str = "text") -> str:
    """A code block, with a fence that is longer than any in the text."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
