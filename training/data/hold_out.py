"""A validation and a test part held out of the training text, by a hash of the text itself.

What a sentence is held out for depends on its words alone: not on where it stands, nor on what else there is. So text
that is added moves no sentence from one part to another, and two runs on growing data are scored on the same sentences.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .cleaning.sentence_hashes import normalized_hashes
from .readers.reader import Reader, divide
from .text.bad_lines import BadLines
from .text.chunks import DOMAIN, chunks_of_pieces, chunks_of_rows

Row = TypeVar("Row")

Part = Literal["train", "validation", "test"]

MOST_PAIRS = 2000
"""As many pairs of a part that is held out are scored; those of the lowest hashes, so that they change little."""

MOST_SECTIONS = 1000
"""The same for running text."""

LINES_OF_A_HEAD = 4
"""By that many lines a section of running text is known; a section has at least as many, unless its document ends."""

LINES_BETWEEN_SECTIONS = 8
"""One line of so many begins a section."""


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """One part of a source: a `Reader` of the rows that belong to it.

    Running text is divided in sections of some twelve lines, which begin where the hash of a line says so. A section is
    a document of its own where it is held out, and so is what follows it where it is missing.
    """

    reader: Reader
    """Of the whole source."""

    part: Part

    share: float
    """How much of the text is held out for validation, and as much again for the test."""

    @property
    def name(self) -> str:
        """The source's."""
        return self.reader.name

    def files(self) -> list[Path]:
        """The source's."""
        return self.reader.files()

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The rows of this part, in their order."""
        chunks = self.reader.chunks(bad)
        for first in chunks:
            if "text" in first.schema.names:
                yield from self._text(_chained(first, chunks))
            else:
                yield from self._pairs(_chained(first, chunks))

    def divide(self, lines: int) -> Sequence[Reader]:
        """Parts of the training text; those that are held out are chosen among all sentences."""
        return [replace(self, reader=part) for part in divide(self.reader, lines)] if self.part == "train" else [self]

    def _pairs(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # By the source alone: several translations of a sentence stay together.
        hashed = ((chunk, normalized_hashes(chunk.column("source"))) for chunk in chunks)
        mine = ((chunk, hashes, self._is_mine(hashes)) for chunk, hashes in hashed)
        if self.part == "train":
            for chunk, _, is_mine in mine:
                yield chunk.filter(pa.array(is_mine))
            return
        rows: list[tuple[int, tuple[str, ...]]] = []
        has_domain = False
        for chunk, hashes, is_mine in mine:
            kept = chunk.filter(pa.array(is_mine))
            has_domain = DOMAIN in kept.schema.names
            pairs = zip(*(column.to_pylist() for column in kept.columns), strict=True)
            rows += zip(hashes[is_mine].tolist(), pairs, strict=True)
        yield from chunks_of_rows((pair for _, pair in _lowest(rows, MOST_PAIRS)), has_domain=has_domain)

    def _text(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.part == "train":
            yield from chunks_of_pieces(self._training_pieces(chunks))
            return
        mine = [(key, text) for key, text, _ in _sections(chunks) if self._is_mine(np.array([key], np.uint64))[0]]
        yield from chunks_of_pieces((text, True) for _, text in _lowest(mine, MOST_SECTIONS))

    def _training_pieces(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, bool]]:
        is_after_gap = False
        for key, text, begins in _sections(chunks):
            if self._is_mine(np.array([key], np.uint64))[0]:
                yield text, begins or is_after_gap
                is_after_gap = False
            else:
                is_after_gap = True

    def _is_mine(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of N rows are of this part, (N,)."""
        place = hashes / 2.0**64
        # At both ends, so that a smaller share takes from each a part of what a larger one does.
        is_validation, is_test = place < self.share, place >= 1 - self.share
        return {"validation": is_validation, "test": is_test, "train": ~(is_validation | is_test)}[self.part]


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _lowest(rows: list[tuple[int, Row]], count: int) -> list[tuple[int, Row]]:
    """The rows of the lowest keys, in their order."""
    if len(rows) <= count:
        return rows
    limit = sorted(key for key, _ in rows)[count - 1]
    return [row for row in rows if row[0] <= limit][:count]


def _sections(chunks: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, str, bool]]:
    """Hash of the head, text, and whether it begins a document, of each section."""
    lines: list[str] = []
    begins = True
    for chunk in chunks:
        for row, begins_document in zip(
            chunk.column("text").to_pylist(), chunk.column("begins").to_pylist(), strict=True
        ):
            pieces = row.splitlines(keepends=True)
            hashes = normalized_hashes(pa.array(pieces, pa.string()))
            for number, (line, key) in enumerate(zip(pieces, hashes.tolist(), strict=True)):
                is_first = begins_document and number == 0
                starts = len(lines) >= LINES_OF_A_HEAD and key % LINES_BETWEEN_SECTIONS == 0
                if lines and (is_first or starts):
                    yield _key(lines), "".join(lines), begins
                    lines, begins = [], is_first
                lines.append(line)
    if lines:
        yield _key(lines), "".join(lines), begins


def _key(lines: list[str]) -> int:
    """A hash of a section's first lines."""
    return int(normalized_hashes(pa.array(["".join(lines[:LINES_OF_A_HEAD])], pa.string()))[0])
