"""Sentence pairs from two files, of which line n of one is the translation of line n of the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...console.input_error import InputError
from ..text.bad_lines import BadLines
from ..text.chunks import chunks_of_rows
from ..text.files import COMPRESSIONS, find_file, unchanged
from ..text.line_ranges import LineRange, find_cuts, ranges_between
from ..text.lines import count_lines, read_lines
from .alignment import first_lost_line
from .reader import require_any


@dataclass(frozen=True, kw_only=True)
class ParallelFiles:
    """Two text files that are aligned line by line."""

    source: Path
    """The file of the sources. It may be compressed, also where the ending of the compression is not given here."""

    target: Path
    """The file of their translations; likewise."""

    parts: tuple[LineRange, LineRange] | None = field(default=None, repr=False)
    """The lines to read of each, if not all."""

    @classmethod
    def with_prefix(cls, prefix: Path, source_language: str, target_language: str) -> Self:
        """Two files that differ in the ending, as those of Moses: `corpus.en` and `corpus.de`."""
        return cls(source=Path(f"{prefix}.{source_language}"), target=Path(f"{prefix}.{target_language}"))

    @property
    def name(self) -> str:
        """Both paths."""
        return f"{self.source}, {self.target}"

    def files(self) -> list[Path]:
        """Both files."""
        return [find_file(self.source), find_file(self.target)]

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The pairs; where the line of one side is left out, that of the other is left out with it.

        Lines are counted before the first pair is read. A line that cannot be used counts as one bad line, hence a
        pair of two such lines as two.
        """
        source, target = self.files()
        with unchanged(source), unchanged(target):
            if self.parts is None:
                _require_same_count(source, target)
            yield from chunks_of_rows(self._pairs(source, target, bad))

    def _pairs(self, source: Path, target: Path, bad: BadLines) -> Iterator[tuple[str, str]]:
        source_part, target_part = self.parts or (None, None)
        sides = read_lines(source, bad, part=source_part), read_lines(target, bad, part=target_part)
        # Of equal length as they were counted, unless one has changed since, which is noticed at the end.
        for source_line, target_line in zip(*sides, strict=False):
            if source_line is not None and target_line is not None:
                yield source_line, target_line

    def divide(self, lines: int) -> Sequence[Self]:
        """Parts by lines, if no file is compressed.

        Raises:
            InputError: if the files have different numbers of lines, as `chunks` does.
        """
        source, target = self.files()
        if {source.suffix, target.suffix} & set(COMPRESSIONS):
            return [self]
        (source_cuts, source_count), (target_cuts, target_count) = find_cuts(source, lines), find_cuts(target, lines)
        if source_count != target_count:
            _require_same_count(source, target)
        both = zip(ranges_between(source_cuts, lines), ranges_between(target_cuts, lines), strict=True)
        return [replace(self, parts=parts) for parts in both] if source_count > lines else [self]


def _require_same_count(source: Path, target: Path) -> None:
    """Raises an `InputError` if two files have different numbers of lines, or none."""
    source_count, target_count = count_lines(source), count_lines(target)
    for path, count in ((source, source_count), (target, target_count)):
        require_any(range(count), path, "text, a line at least")
    if source_count != target_count:
        lost = first_lost_line(_line_lengths(source), _line_lengths(target))
        raise InputError(
            f"{source} has {source_count:,} lines and {target} has {target_count:,}; line n of one must be the "
            f"translation of line n of the other, which it is no more probably from line {lost:,} on (an estimate from "
            "the lengths of the lines)"
        )


def _line_lengths(path: Path) -> NDArray[np.int32]:
    """Characters of each line, 0 for one that cannot be used; shape (lines,)."""
    return np.fromiter((len(line or "") for line in read_lines(path, BadLines(skip=True))), np.int32)
