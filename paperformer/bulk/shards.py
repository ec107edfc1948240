"""A file of lines, cut into shards, and what is made of each: written whole or not at all, and joined in order.

    OUTPUT.shards/request.json     what decides about the lines; a run that goes on must have the same
    OUTPUT.shards/00000012.lines   what was made of shard 12
    OUTPUT.shards/00000012.done    its completion mark: how many lines and bytes that has, and their hash

A shard counts as done where its mark is there and the lines are as many bytes as it names. The mark is written after
the lines, and both under another name that is then changed, so that a process that is killed at any instant leaves a
shard that is done or one that is not begun. Two processes that do the same shard write the same.
"""

import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from ..training.atomic_files import replace_file, writing
from ..training.console.input_error import InputError
from ..training.data.text.files import COMPRESSIONS
from ..translation.line_output import refuse_output

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Lines that are worked on as one; the same of each file, where line n of one belongs to line n of the others."""

    number: int
    """From 0."""

    first_line: int
    """From 1."""

    lines: int
    places: tuple[tuple[int, int], ...]
    """Where they begin and end in each file, in bytes."""


def cut_into_shards(paths: Sequence[Path], lines_a_shard: int) -> list[Shard]:
    """The shards of a file, or of several with as many lines.

    Args:
        paths: of text, not compressed, so that any part can be read by itself.
        lines_a_shard: of each but the last.

    Raises:
        InputError: if one cannot be read, is compressed, or has another number of lines than the first.
    """
    if lines_a_shard < 1:
        raise InputError(f"shard_lines is {lines_a_shard}; it must be at least 1")
    cuts = [_find_cuts(path, lines_a_shard) for path in paths]
    for path, (_, lines) in zip(paths, cuts, strict=True):
        if lines != cuts[0][1]:
            raise InputError(f"{path} has {lines:,} lines and {paths[0]} has {cuts[0][1]:,}; each must belong to one")
    starts, total = [own for own, _ in cuts], cuts[0][1]
    return [
        Shard(
            number=number,
            first_line=number * lines_a_shard + 1,
            lines=min(lines_a_shard, total - number * lines_a_shard),
            places=tuple((own[number], own[number + 1]) for own in starts),
        )
        for number in range(len(starts[0]) - 1)
    ]


def _find_cuts(path: Path, lines_a_shard: int) -> tuple[list[int], int]:
    """Where shards begin in a file, and at last where it ends; and how many lines it has."""
    if path.suffix in COMPRESSIONS:
        raise InputError(f"{path} is compressed, and shards are read from the middle of it; unpack it")
    starts, lines, place, last = [0], 0, 0, b"\n"
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                found = block.count(b"\n")
                while lines + found >= len(starts) * lines_a_shard:
                    starts.append(place + _end_of_line(block, len(starts) * lines_a_shard - lines))
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


def read_shard(path: Path, place: tuple[int, int]) -> Iterator[bytes]:
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


class ShardFolder:
    """What is made of shards, until all are done and the file can be written.

    Args:
        path: the file that comes of it; the folder is `FILE.shards`, which all machines of a cluster have to see.
    """

    def __init__(self, path: Path):
        self.path, self.folder = path, Path(f"{path}.shards")

    def begin(self, request: Mapping[str, Any], *, overwrite: bool = False) -> None:
        """Makes the folder, or finds that it was begun with the same request.

        Raises:
            InputError: if there is an older file, or one begun otherwise, and `overwrite` is not said; if the folder
                cannot be written.
        """
        refuse_output(self.path, overwrite=overwrite)
        known = self.folder / "request.json"
        if overwrite and self.folder.exists():
            shutil.rmtree(self.folder)
        if known.is_file():
            begun = json.loads(known.read_text("utf-8"))
            now = json.loads(json.dumps(dict(request)))
            if different := sorted(name for name in now if begun.get(name) != now[name]):
                raise InputError(
                    f"{self.folder} was begun with another {', '.join(different)}; give that again, or --overwrite "
                    "true to begin anew"
                )
            return
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)
        replace_file(known, json.dumps(dict(request)))

    def is_done(self, shard: Shard) -> bool:
        """Whether a shard has its mark, and the lines that the mark names."""
        lines = self._place(shard, "lines")
        try:
            mark = json.loads(self._place(shard, "done").read_text("utf-8"))
            return bool(mark["shard"] == shard.lines and mark["bytes"] == lines.stat().st_size)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def write(self, shard: Shard, content: bytes) -> None:
        """Writes what was made of a shard, and marks it done.

        Raises:
            InputError: if it cannot be written.
        """
        mark = {"shard": shard.lines, "bytes": len(content), "xxh3": xxhash.xxh3_128_hexdigest(content)}
        for kind, own in (("lines", content), ("done", json.dumps(mark).encode())):
            path = self._place(shard, kind)
            # Another machine may do the same shard, if the cluster has taken this one for dead.
            temporary = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.partial")
            with writing(path):
                with temporary.open("wb") as file:
                    file.write(own)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(path)

    def join(self, shards: Sequence[Shard]) -> None:
        """Writes the file of all shards in their order, and removes the folder.

        Raises:
            InputError: if one is missing or is not what its mark says, which is then to be done again; or if the file
                cannot be written.
        """
        temporary = Path(f"{self.path}.part")
        with writing(self.path):
            with temporary.open("wb") as file:
                for shard in shards:
                    file.write(self._read(shard))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        shutil.rmtree(self.folder)

    def _read(self, shard: Shard) -> bytes:
        content = self._place(shard, "lines").read_bytes() if self.is_done(shard) else b""
        mark = self._place(shard, "done")
        if not mark.is_file() or json.loads(mark.read_text("utf-8"))["xxh3"] != xxhash.xxh3_128_hexdigest(content):
            mark.unlink(missing_ok=True)
            raise InputError(f"{self._place(shard, 'lines')} is missing or damaged; the same command does it again")
        return content

    def _place(self, shard: Shard, kind: str) -> Path:
        return self.folder / f"{shard.number:08d}.{kind}"
