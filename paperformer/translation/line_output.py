"""Where translations go, a line each: standard output, or a file that is there when it is complete.

Until then they are in `FILE.part`, in order and without a gap, and a run that was killed goes on behind them.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, groupby
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from ..training.atomic_files import check_replaceable, replace_file
from ..training.console.input_error import InputError
from ..training.console.progress import say
from ..training.data.text.files import COMPRESSIONS
from ..training.path_lock import hold_lock


def refuse_output(path: Path, *, overwrite: bool) -> None:
    """Looks whether a file can be written.

    Raises:
        InputError: if there is one already, if there is no folder for it, or if its name says that it is compressed.
    """
    if path.suffix in COMPRESSIONS:
        raise InputError(f"--output {path}: translations are written uncompressed; leave {path.suffix} off")
    if path.is_dir():
        raise InputError(f"{path} is a folder; --output must be a file")
    check_replaceable(path)
    if path.exists() and not overwrite:
        raise InputError(f"{path} is there already; give another --output, or --overwrite true")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for --output")


RecordOf = Callable[[bytes], Any]
"""What a line belongs to; lines that follow each other and belong to the same are one item."""


class StandardOutput:
    """Writes to standard output, and hands on at once."""

    done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def write(self, lines: Sequence[str]) -> None:
        """Writes lines.

        Raises:
            InputError: if the disk is full, or cannot be written for another reason.
        """
        with standard_output():
            for line in lines:
                print(line)


@contextmanager
def standard_output() -> Iterator[None]:
    """Hands on what is written in the `with` block, or says in one line why that is not possible."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads it any more, and nothing is to be said
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still has to write
        raise InputError(f"standard output cannot be written: {error.strerror}") from error


class OutputFile:
    """A file that is complete or not there.

    Its request lies beside what is begun of it, as the first line of `FILE.part.json`. No other process can begin it,
    or go on with it, until the `with` block is left.

    Args:
        path: the file.
        request: what decides its lines, as JSON has it: of a begun file it must be the same.
        overwrite: whether an older file, or one begun otherwise, may be lost.
        record_of: tells by a line what it belongs to, where one call of `write` may have several lines an item; a begun
            file is then continued from the last item, which may not be complete.

    Raises:
        InputError: if there is one, another process is writing it, or the folder cannot be written to.
    """

    unit = "lines"

    def __init__(
        self,
        path: Path,
        request: Mapping[str, Any],
        *,
        overwrite: bool = False,
        record_of: RecordOf | None = None,
    ):
        self.path, self.part, self.begun = path, Path(f"{path}.part"), Path(f"{path}.part.json")
        refuse_output(path, overwrite=overwrite)
        self.hint = "" if overwrite else "; the same command goes on behind them"
        self.record_of = record_of
        self.done = 0
        """Lines, or items of several lines, that an earlier run has written."""
        with ExitStack() as held:
            held.enter_context(hold_lock(path, otherwise="give another --output"))
            self._file = self._open(dict(request), overwrite=overwrite)
            self._held = held.pop_all()

    def _open(self, request: dict[str, Any], *, overwrite: bool) -> BinaryIO:
        """The begun file, at the end of what is complete of it."""
        try:
            if overwrite:
                self.part.unlink(missing_ok=True)
            if self.part.exists():
                self._go_on(request)
            else:
                replace_file(self.begun, json.dumps(request))
            return self.part.open("ab")
        except OSError as error:
            raise InputError(f"{self.part} cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._held:
            self._file.close()
            if kind is None:
                self._complete()
                for begun in (self.part, self.begun):
                    begun.unlink(missing_ok=True)
            else:
                say(f"{self.done:,} {self.unit} are in {self.part}{self.hint}")

    def _complete(self) -> None:
        """Gives the file its name."""
        self.part.replace(self.path)

    def write(self, lines: Sequence[str]) -> None:
        """Writes lines, so that no end of this process loses them.

        Raises:
            InputError: if the disk is full, or cannot be written for another reason.
        """
        self._append("".join(f"{line}\n" for line in lines).encode(), len(lines))

    def _append(self, content: bytes, count: int) -> None:
        try:
            self._file.write(content)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(f"{self.part} cannot be written: {error.strerror}") from error
        self.done += count

    def _go_on(self, request: dict[str, Any]) -> None:
        """Finds out how far the begun file is, and takes away what is not complete."""
        try:
            begun = json.loads(self.begun.read_text("utf-8").partition("\n")[0])
        except (OSError, ValueError):
            begun = None
        if begun != request:
            known = begun if isinstance(begun, dict) else request
            different = sorted(name for name in request if known.get(name) != request[name])
            raise InputError(
                f"{self.part} was begun with another {', '.join(different) or 'command'}; "
                "give that again, or --overwrite true to begin anew"
            )
        with self.part.open("r+b") as file:
            self.done, complete = self._find_complete(file)
            file.truncate(complete)
        if self.done:
            say(f"going on behind the {self.done:,} {self.unit} of {self.part}")

    def _find_complete(self, file: BinaryIO) -> tuple[int, int]:
        """How many are complete, and how many bytes those have."""
        done = complete = whole = 0
        for _, lines in groupby(_lines_with_end(file), self.record_of or _each_by_itself()):
            whole, complete, done = complete, complete + sum(map(len, lines)), done + 1
        # Of an item of several lines nothing says that it has them all, but that another follows.
        return (done - 1, whole) if self.record_of is not None and done else (done, complete)


def _lines_with_end(file: BinaryIO) -> Iterable[bytes]:
    return (line for line in file if line.endswith(b"\n"))


def _each_by_itself() -> RecordOf:
    numbers = count()
    return lambda line: next(numbers)
