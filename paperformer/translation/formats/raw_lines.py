"""The lines of a file as the bytes that they are, so that what is not translated can be written as it was."""

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...training.console.input_error import InputError
from ..line_source import BLOCK_BYTES, LONGEST_LINE

OVERLONG = f"it has more than {LONGEST_LINE:,} bytes: not translated"


class RawLine(NamedTuple):
    """A line, or a part of one that is too long."""

    number: int
    """From 1."""

    content: bytes
    """Without its end, and in the first line without a byte order mark."""

    mark: bytes = b""
    """The byte order mark before it."""

    end: bytes = b""
    """Line feed, with the carriage return before it; nothing where the file ends without."""

    is_part: bool = False
    """Whether the line goes on in the next one."""

    is_overlong: bool = False
    """Whether it is the last part of a line that is too long."""

    @property
    def raw(self) -> bytes:
        """All of it."""
        return self.mark + self.content + self.end


def raw_lines(read: Callable[[int], bytes], name: str) -> Iterator[RawLine]:
    """The lines of some bytes, each as soon as it is there; of one that is too long, parts.

    Args:
        read: gives up to so many bytes as soon as there are any; none at the end.
        name: of the file, for messages.

    Raises:
        InputError: if it is UTF-16.
    """
    number, rest, is_overlong = 1, b"", False
    is_at_start = True
    while block := read(BLOCK_BYTES):
        rest += block
        if is_at_start:
            if rest.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                raise InputError(f"{name} is UTF-16, by its first bytes; convert it to UTF-8")
            is_at_start = len(rest) < len(BOM_UTF8)
        *complete, rest = rest.split(b"\n")
        for place, content in enumerate([*complete, rest]):
            while len(content) > LONGEST_LINE:
                yield _line(number, content[:LONGEST_LINE], is_overlong)._replace(is_part=True)
                content, is_overlong = content[LONGEST_LINE:], True
            if place < len(complete):
                yield _line(number, content + b"\n", is_overlong)
                number, is_overlong = number + 1, False
        rest = content
    if rest or is_overlong:
        yield _line(number, rest, is_overlong)


def _line(number: int, raw: bytes, is_overlong: bool) -> RawLine:
    mark = BOM_UTF8 if number == 1 and not is_overlong and raw.startswith(BOM_UTF8) else b""
    content = raw[len(mark) :]
    end = b"\r\n" if content.endswith(b"\r\n") else b"\n" if content.endswith(b"\n") else b""
    return RawLine(number, content[: len(content) - len(end)], mark, end, is_overlong=is_overlong)
