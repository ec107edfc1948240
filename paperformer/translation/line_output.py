"""Where translations go, a line each: standard output, or a file that is there when it is complete.

Until then they are in `FILE.part`, in order and without a gap, and a run that was killed goes on behind them.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, groupby
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from ..training.atomic_files import check_replaceable, replace_file
from ..training.console.input_error import InputError
from ..training.console.progress import say

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
        """Writes lines."""
        for line in lines:
            print(line)
        sys.stdout.flush()


class OutputFile:
    """A file that is complete or not there.

    Args:
        path: the file.
        request: what decides its lines, as JSON has it: of a begun file it must be the same.
        overwrite: whether an older file, or one begun otherwise, may be lost.
        record_of: tells by a line what it belongs to, where one call of `write` may have several lines an item; a begun
            file is then continued from the last item, which may not be complete.

    Raises:
        InputError: if there is one, or the folder cannot be written to.
    """

    def __init__(
        self,
        path: Path,
        request: Mapping[str, Any],
        *,
        overwrite: bool = False,
        record_of: RecordOf | None = None,
    ):
        self.path, self.part, self.begun = path, Path(f"{path}.part"), Path(f"{path}.part.json")
        self.hint = "" if overwrite else "; the same command goes on behind them"
        self.record_of = record_of
        self.done = 0
        """Lines, or items of several lines, that an earlier run has written."""
        if path.is_dir():
            raise InputError(f"{path} is a folder; --output must be a file")
        check_replaceable(path)
        if path.exists() and not overwrite:
            raise InputError(f"{path} is there already; give another --output, or --overwrite true")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} for --output")
        if overwrite:
            self.part.unlink(missing_ok=True)
        try:
            if self.part.exists():
                self._go_on(dict(request))
            else:
                replace_file(self.begun, json.dumps(dict(request)))
            self._file: BinaryIO = self.part.open("ab")
        except OSError as error:
            raise InputError(f"{self.part} cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        if kind is None:
            self.part.replace(self.path)
            self.begun.unlink(missing_ok=True)
        else:
            say(f"{self.done:,} lines are in {self.part}{self.hint}")

    def write(self, lines: Sequence[str]) -> None:
        """Writes lines, so that no end of this process loses them.

        Raises:
            InputError: if the disk is full, or cannot be written for another reason.
        """
        try:
            self._file.write("".join(f"{line}\n" for line in lines).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(f"{self.part} cannot be written: {error.strerror}") from error
        self.done += len(lines)

    def _go_on(self, request: dict[str, Any]) -> None:
        """Finds out how far the begun file is, and takes away a line that is not complete."""
        try:
            begun = json.loads(self.begun.read_text("utf-8"))
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
            complete = whole = 0
            for _, lines in groupby(_lines_with_end(file), self.record_of or _each_by_itself()):
                whole, complete = complete, complete + sum(map(len, lines))
                self.done += 1
            if self.record_of is not None and self.done:
                complete, self.done = whole, self.done - 1
            file.truncate(complete)
        if self.done:
            say(f"going on behind the {self.done:,} lines of {self.part}")


def _lines_with_end(file: BinaryIO) -> Iterable[bytes]:
    return (line for line in file if line.endswith(b"\n"))


def _each_by_itself() -> RecordOf:
    numbers = count()
    return lambda line: next(numbers)
