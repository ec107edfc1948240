"""A folder of what was made of parts of some work: each is written whole or not at all, and has a completion mark.

    FOLDER/00000012.lines   what was made of part 12
    FOLDER/00000012.done    its mark: what part that is, how many bytes were made of it, and their hash

A part counts as done where its mark is there and what was made of it is as many bytes as it names. The mark is written
after that, and both under another name that is then changed, so that a process that is killed at any instant leaves a
part that is done or one that is not begun. Two processes that do the same part write the same.
"""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from ..training.atomic_files import writing
from ..training.console.input_error import InputError

BLOCK_BYTES = 1 << 20


class MarkedParts:
    """What was made of parts, which have numbers.

    Args:
        folder: all machines of a cluster have to see it.
        kind: what is made, in a word; the files' names end with it.
    """

    def __init__(self, folder: Path, kind: str):
        self.folder, self.kind = folder, kind

    def is_done(self, number: int, what: Any) -> bool:
        """Whether a part has its mark, and what the mark names.

        Args:
            what: says which part it is, as `json` has it, lest it is one that was cut otherwise.
        """
        try:
            mark = self._mark(number)
            return bool(mark["shard"] == what and mark["bytes"] == self._place(number, self.kind).stat().st_size)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def write(self, number: int, what: Any, fill: Callable[[BinaryIO], Any]) -> None:
        """Writes what was made of a part, and marks it done.

        Args:
            what: see `is_done`.
            fill: writes it; what it returns is kept with the mark, as `json` has it.

        Raises:
            InputError: if it cannot be written.
        """
        path = self._place(number, self.kind)
        with writing(path):
            temporary = _temporary(path)
            with temporary.open("wb") as file:
                facts = fill(file)
                _sync(file)
            mark = {"shard": what, "bytes": temporary.stat().st_size, "xxh3": _hash(temporary), "facts": facts}
            temporary.replace(path)
            path = self._place(number, "done")
            temporary = _temporary(path)
            with temporary.open("wb") as file:
                file.write(json.dumps(mark).encode())
                _sync(file)
            temporary.replace(path)

    def facts(self, number: int) -> Any:
        """What was kept with the mark of a part that is done."""
        return self._mark(number)["facts"]

    def checked(self, number: int, what: Any) -> Path:
        """The file of what was made of a part.

        Raises:
            InputError: if it is missing, or is not what its mark says; the part is then to be done again.
        """
        path = self._place(number, self.kind)
        if not self.is_done(number, what) or self._mark(number)["xxh3"] != _hash(path):
            self._place(number, "done").unlink(missing_ok=True)
            raise InputError(f"{path} is missing or damaged; the same command does it again")
        return path

    def _mark(self, number: int) -> dict[str, Any]:
        mark: dict[str, Any] = json.loads(self._place(number, "done").read_text("utf-8"))
        return mark

    def _place(self, number: int, kind: str) -> Path:
        return self.folder / f"{number:08d}.{kind}"


def _temporary(path: Path) -> Path:
    # Another machine may do the same part, if the cluster has taken this one for dead.
    return path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.partial")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _hash(path: Path) -> str:
    content = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            content.update(block)
    return content.hexdigest()
