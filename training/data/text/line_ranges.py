"""Parts of a file of lines, each of which can be read without the others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ...console.input_error import InputError
from .files import COMPRESSIONS, readable

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class LineRange:
    """Lines of a file, one after another."""

    start: int
    """Where they begin, in bytes."""

    end: int
    """Where they end."""

    first_line: int
    """The number of the first, from 1."""


def line_ranges(path: Path, lines: int) -> list[LineRange]:
    """The parts of a file of so many lines each, the last one with fewer; one at most if it is compressed.

    Raises:
        InputError: if it cannot be read.
    """
    if path.suffix in COMPRESSIONS:
        return []
    return ranges_between(find_cuts(path, lines)[0], lines)


def ranges_between(cuts: Sequence[int], lines: int) -> list[LineRange]:
    """The parts that `find_cuts` has found, of so many lines each."""
    return [LineRange(*place, number * lines + 1) for number, place in enumerate(pairwise(cuts))]


def ranges_of_paragraphs(path: Path, lines: int) -> list[LineRange]:
    """The same, but that a part ends with an empty line; so it has some lines more, or one part is all of them."""
    ranges = line_ranges(path, lines)
    cuts = [(0, 1)]
    with readable(path), path.open("rb") as file:
        for found in ranges[1:]:
            if found.start <= cuts[-1][0]:
                continue
            file.seek(found.start)
            number, is_beginning = found.first_line, True
            while line := file.readline(BLOCK_BYTES):  # the whole line or a part of it
                is_empty, is_beginning = is_beginning and line in (b"\n", b"\r\n"), line.endswith(b"\n")
                number += is_beginning
                if is_empty:
                    cuts.append((file.tell(), number))
                    break
            else:
                break
    ends = [start for start, _ in cuts[1:]] + [found.end for found in ranges[-1:]]
    return [LineRange(start, end, number) for (start, number), end in zip(cuts, ends, strict=False) if start < end]


def find_cuts(path: Path, lines_a_part: int) -> tuple[list[int], int]:
    """Where parts of so many lines begin in a file, and at last where it ends; and how many lines it has.

    Raises:
        InputError: if it cannot be read, or is compressed.
    """
    if path.suffix in COMPRESSIONS:
        raise InputError(f"{path} is compressed, and shards are read from the middle of it; unpack it")
    starts, lines, place, last = [0], 0, 0, b"\n"
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                found = block.count(b"\n")
                while lines + found >= len(starts) * lines_a_part:
                    starts.append(place + _end_of_line(block, len(starts) * lines_a_part - lines))
                lines, place, last = lines + found, place + len(block), block[-1:]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    lines += last != b"\n"
    return starts if starts[-1] == place else [*starts, place], lines


def _end_of_line(block: bytes, number: int) -> int:
    """The place behind the line feed of this number, from 1."""
    place = 0
    for _ in range(number):
        place = block.index(b"\n", place) + 1
    return place


def read_range(path: Path, place: Sequence[int]) -> Iterator[bytes]:
    """The bytes of a file from one place to another, block by block.

    Raises:
        InputError: if it cannot be read, or has become shorter.
    """
    start, end = place
    try:
        with path.open("rb") as file:
            file.seek(start)
            while start < end:
                block = file.read(min(BLOCK_BYTES, end - start))
                if not block:
                    raise InputError(f"{path} has become shorter while it was read")
                yield block
                start += len(block)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
