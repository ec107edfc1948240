"""Lines to translate, from a file or a pipe of any size: one for one, whatever the bytes are."""

import re
import sys
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Generic, TypeVar

from ..training.data.text.files import open_binary

Item = TypeVar("Item")

LONGEST_LINE = 1 << 24
"""Bytes: 16 MB. What a line has beyond them is left out."""

READ_AHEAD = 1 << 23
"""Characters that are read before they are wanted."""

LINE_COST = 100
"""Characters that a line counts for besides its own, so that empty ones do not fill the memory either."""

BLOCK_BYTES = 1 << 16

# Of the control characters a line has none but the tabulator, and what other programs take for ends of lines.
UNWANTED = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]+")


@dataclass(frozen=True)
class Line:
    """A line that can be translated."""

    number: int
    """From 1."""

    text: str

    faults: tuple[str, ...] = ()
    """What had to be left out."""


def clean_lines(read: Callable[[int], bytes], first_number: int = 1) -> Iterator[Line]:
    """The lines of some bytes, each as soon as it is there.

    What cannot be text is left out, and said in the line's faults: bytes that are not UTF-8, control characters, and
    what is beyond `LONGEST_LINE`. A byte order mark at the beginning and carriage returns at the ends are no faults.

    Args:
        read: gives up to so many bytes as soon as there are any; none at the end.
        first_number: of the first line, where what is read is not the beginning.
    """
    number, line = first_number, b""
    while block := read(BLOCK_BYTES):
        first, *others = block.split(b"\n")
        line += first[: LONGEST_LINE + 1 - len(line)]  # one byte too many tells that there were more
        for other in others:
            yield _clean(line, number)
            number, line = number + 1, other[: LONGEST_LINE + 1]
    if line and (number, line) != (1, BOM_UTF8):
        yield _clean(line, number)


def lines_of_file(path: Path) -> Iterator[Line]:
    """The lines of a file, which may be compressed.

    Raises:
        InputError: if it cannot be read, is damaged, or changes meanwhile.
    """
    with open_binary(path) as file:
        yield from clean_lines(file.read)


def lines_of_standard_input() -> Iterator[Line]:
    """The lines of standard input."""
    with open_standard_input() as read:
        yield from clean_lines(read)


@contextmanager
def open_standard_input() -> Iterator[Callable[[int], bytes]]:
    """Reads standard input: up to so many bytes as soon as there are any; none at the end."""
    try:
        # Not by its buffer, whose lock a thread that waits for a line would hold when the program ends.
        number = sys.stdin.fileno()
    except OSError:  # it is no file of the operating system's
        yield sys.stdin.buffer.read
        return
    with open(number, "rb", buffering=0, closefd=False) as file:
        yield lambda count: file.read(count) or b""


def _clean(line: bytes, number: int) -> Line:
    faults = []
    if number == 1:
        line = line.removeprefix(BOM_UTF8)
    if len(line) > LONGEST_LINE:
        line = line[:LONGEST_LINE]
        while line and line[-1] & 0xC0 == 0x80:  # the middle of a character
            line = line[:-1]
        line = line[:-1]
        faults.append(f"it has more than {LONGEST_LINE:,} bytes, and the rest was left out")
    text = decode(line.removesuffix(b"\r"), faults)
    return Line(number, without_control_characters(text, faults), tuple(faults))


def decode(content: bytes, faults: list[str]) -> str:
    """The text of some bytes, without what is not UTF-8, which becomes a fault."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        text = content.decode("utf-8", "ignore")
        byte = f"0x{content[error.start]:02x} at byte {error.start + 1}"
        others = len(content) - len(text.encode()) - 1
        faults.append(f"what is not UTF-8 was left out, {byte} and {f'{others} more' if others else 'no other'}")
        return text


def without_control_characters(text: str, faults: list[str]) -> str:
    """The text of a line with blanks for what it should not have, which becomes a fault."""
    if found := UNWANTED.search(text):
        faults.append(f"control characters were taken for blanks, the first is U+{ord(found[0][0]):04X}")
        return UNWANTED.sub(" ", text)
    return text


def _cost(line: Any) -> int:
    return len(line.text) + LINE_COST


class ReadAhead(Generic[Item]):
    """Reads lines in a thread of its own, so that those which are there can be taken together, without waiting.

    Args:
        lines: what to read; an exception that it raises comes where the next line would.
        cost: how much memory a line takes, in characters; if they are not of the type `Line`.
    """

    def __init__(self, lines: Iterator[Item], cost: Callable[[Item], int] = _cost):
        self._lines, self._cost = lines, cost
        self._ready: deque[Item] = deque()
        self._characters = 0  # of what is ready
        self._is_done = self._is_closed = False
        self._failure: BaseException | None = None
        self._changed = Condition()
        Thread(target=self._read, name="lines to translate", daemon=True).start()

    def take(self, count: int) -> list[Item]:
        """Up to so many lines: those that are there, or the first that comes; none at the end.

        Raises:
            Exception: what reading raised, after all lines before it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._is_done)
            taken = [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
            self._characters -= sum(map(self._cost, taken))
            self._changed.notify_all()
            if not taken and self._failure is not None:
                raise self._failure
            return taken

    def close(self) -> None:
        """Reads no further."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _read(self) -> None:
        try:
            for line in self._lines:
                with self._changed:
                    self._changed.wait_for(lambda: self._characters < READ_AHEAD or self._is_closed)
                    if self._is_closed:
                        return
                    self._ready.append(line)
                    self._characters += self._cost(line)
                    self._changed.notify_all()
        except BaseException as failure:  # noqa: BLE001 - raised in `take`
            self._failure = failure
        finally:
            with self._changed:
                self._is_done = True
                self._changed.notify_all()
