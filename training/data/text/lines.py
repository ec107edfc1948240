"""Lines of UTF-8 text of any size, with a clear word about those that cannot be used.

A line ends with a line feed. A byte order mark at the beginning, and the carriage returns of Windows line ends, are
taken away.
"""

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from .bad_lines import BadLines
from .files import open_binary
from .line_ranges import LineRange, read_range

BLOCK_BYTES = 1 << 18  # fits a CPU's cache, which doubles the speed of a megabyte
LONGEST_LINE = 1 << 20
"""Bytes. A longer line is no sentence, and reading on to its end could fill the memory."""


def read_lines(
    path: Path, bad: BadLines | None = None, *, keep_ends: bool = False, part: LineRange | None = None
) -> Iterator[str | None]:
    """The lines of a file, in order; None stands for one that is left out, so that line numbers stay right.

    Args:
        path: the file; it may be compressed, unless a part of it is asked for.
        bad: what to do with a line that is not UTF-8, has a NUL byte, or is longer than `LONGEST_LINE`; by default
            the first is an error.
        keep_ends: whether a line comes with its line feed, which the last line of a file may lack.
        part: the lines to read, if not all.

    Raises:
        InputError: if the file cannot be read, or has a bad line that is not to be left out.
    """
    if part is not None:
        content = read_range(path, (part.start, part.end))
        yield from decode_lines(content, str(path), bad, keep_ends=keep_ends, first_line=part.first_line)
        return
    with open_binary(path) as file:
        yield from decode_lines(blocks(file), str(path), bad, keep_ends=keep_ends)


def count_lines(path: Path) -> int:
    """How many lines `read_lines` gives for a file, without decoding them.

    Raises:
        InputError: if the file cannot be read.
    """
    line_feeds, last = 0, b""
    with open_binary(path) as file:
        for block in _without_mark(blocks(file)):
            line_feeds += block.count(b"\n")
            last = block or last
    return line_feeds + (last != b"" and not last.endswith(b"\n"))


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """What is left of a file, in blocks of at most `BLOCK_BYTES`."""
    while block := file.read(BLOCK_BYTES):
        yield block


def _without_mark(content: Iterable[bytes]) -> Iterator[bytes]:
    """Takes a byte order mark away, even if it comes in parts."""
    content = iter(content)
    head = b""
    for block in content:
        head += block
        if len(head) >= len(BOM_UTF8):
            break
    yield head.removeprefix(BOM_UTF8)
    yield from content


def decode_lines(
    content: Iterable[bytes],
    name: str,
    bad: BadLines | None = None,
    *,
    keep_ends: bool = False,
    first_line: int = 1,
) -> Iterator[str | None]:
    """The lines of a text that comes in blocks of bytes; as `read_lines`, with a name for the messages.

    A bad line is told of when its turn comes, so that the order of what two files are told of is that of their lines.
    """
    bad = bad or BadLines()
    number = first_line  # of the line that the next byte belongs to
    rest = b""  # its beginning, if a block ended inside it
    is_skipping = False  # the rest of a line that is too long
    for block in _without_mark(content) if first_line == 1 else content:
        if is_skipping:
            _, line_end, block = block.partition(b"\n")
            if not line_end:
                continue
            is_skipping, number = False, number + 1
            yield None
        complete, line_end, tail = block.rpartition(b"\n")
        if line_end:
            lines = _decode(rest + complete, number, name, bad)
            yield from (line if line is None else line + "\n" for line in lines) if keep_ends else lines
            number += complete.count(b"\n") + 1
            rest = tail
        else:
            rest += tail
        if len(rest) > LONGEST_LINE:
            _report_overlong(number, name, bad)
            rest, is_skipping = b"", True
    if is_skipping:
        yield None
    elif rest:
        yield from _decode(rest, number, name, bad)


def _decode(content: bytes, number: int, name: str, bad: BadLines) -> Iterable[str | None]:
    """The lines of some bytes, the first of which has this number; None for those that are left out."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"  # to be found line by line
    if "\0" not in text and len(content) <= LONGEST_LINE:
        lines = text.split("\n")
        return [line.removesuffix("\r") for line in lines] if "\r" in text else lines
    return (_decode_line(line, number + index, name, bad) for index, line in enumerate(content.split(b"\n")))


def _decode_line(line: bytes, number: int, name: str, bad: BadLines) -> str | None:
    if len(line) > LONGEST_LINE:
        _report_overlong(number, name, bad)
        return None
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line is not UTF-8; convert to UTF-8"
        bad.report(f"{name}, line {number}", "not UTF-8", detail)
        return None
    if "\0" in text:
        detail = f"byte {line.index(0) + 1} of the line is NUL; a text has none (is it UTF-16? convert it to UTF-8)"
        bad.report(f"{name}, line {number}", "NUL byte", detail)
        return None
    return text


def _report_overlong(number: int, name: str, bad: BadLines) -> None:
    detail = f"the line has more than {LONGEST_LINE:,} bytes; a line must be a sentence or a paragraph"
    bad.report(f"{name}, line {number}", "line too long", detail)
