"""What cleaning has kept and left out, and why, with examples."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

EXAMPLES_A_REASON = 3
CHARACTERS_OF_AN_EXAMPLE = 100

IN_EVALUATION = "also in the evaluation sets"
"""The reason for which leaks are left out."""


class CleaningReport:
    """Counts of rows, and the first rows that were left out for each reason.

    Args:
        reasons: what rows are left out for, in the order of the checks.
    """

    def __init__(self, reasons: Sequence[str]):
        self.rows = 0
        """Rows that were read."""
        self.dropped = dict.fromkeys(reasons, 0)
        """Reason -> rows that were left out for it."""
        self.examples: dict[str, list[list[str]]] = {reason: [] for reason in reasons}
        """Reason -> the texts of the first of these rows, shortened."""
        self.leaked_lines = 0
        """Rows of joined text that are in the evaluation sets; they were kept."""

    @property
    def kept(self) -> int:
        """Rows that were not left out."""
        return self.rows - sum(self.dropped.values())

    def drop(self, reason: str, texts: Sequence[pa.Array]) -> None:
        """Takes note of N rows that are left out for a reason.

        Args:
            texts: for each side of a pair, or for a text alone, those of the rows: (N,).
        """
        self.dropped[reason] += len(texts[0])
        room = EXAMPLES_A_REASON - len(self.examples[reason])
        rows = zip(*(column.slice(0, room).to_pylist() for column in texts), strict=True)
        self.examples[reason] += [[_shortened(text) for text in row] for row in rows]

    def add(self, report: Mapping[str, Any]) -> None:
        """Takes over what another one, of rows that come after those of this one, has as its `to_dict`."""
        self.rows += report["rows"]
        self.leaked_lines += report["leaked_lines"]
        for reason, count in report["dropped"].items():
            self.dropped[reason] += count
        for reason, rows in report["examples"].items():
            self.examples[reason] += rows[: EXAMPLES_A_REASON - len(self.examples[reason])]

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        return {
            "rows": self.rows,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "examples": {reason: rows for reason, rows in self.examples.items() if rows},
            "leaked_lines": self.leaked_lines,
        }

    def table(self, title: str) -> str:
        """The report for people (see `report_table`)."""
        return report_table(self.to_dict(), title)


def report_table(report: Mapping[str, Any], title: str) -> str:
    """A report for people, as plain text.

    Args:
        report: as `CleaningReport.to_dict` gives it.
        title: what was cleaned.
    """
    rows = report["rows"]
    lines = [f"{title}: kept {report['kept']:,} of {rows:,} rows"]
    for reason, count in report["dropped"].items():
        if count > 0:
            lines.append(f"{count:>12,}  {count / rows:>7.3%}  {reason}")
            lines += [f"{'':25}{' | '.join(map(_printable, row))}" for row in report["examples"].get(reason, [])]
    if leaked := report["leaked_lines"]:
        lines.append(f"{leaked:>12,}  {leaked / rows:>7.3%}  kept, {IN_EVALUATION}")
    return "\n".join(lines)


def _shortened(text: str) -> str:
    return text if len(text) <= CHARACTERS_OF_AN_EXAMPLE else text[: CHARACTERS_OF_AN_EXAMPLE - 1] + "…"


def _printable(text: str) -> str:
    """The text with what cannot be seen, or would upset a terminal, as an escape such as `\\x07`."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
