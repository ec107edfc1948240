"""A file of lines, cut into shards, and what is made of each: written whole or not at all, and joined in order.

OUTPUT.shards/request.json     what decides about the lines; a run that goes on must have the same
OUTPUT.shards/00000012.lines   what was made of shard 12; beside it its completion mark, see `marked_parts`
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..training.atomic_files import replace_file, writing
from ..training.console.input_error import InputError
from ..training.data.text.line_ranges import find_cuts
from ..translation.line_output import refuse_output
from .marked_parts import MarkedParts


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
    cuts = [find_cuts(path, lines_a_shard) for path in paths]
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


class ShardFolder:
    """What is made of shards, until all are done and the file can be written.

    Args:
        path: the file that comes of it; the folder is `FILE.shards`, which all machines of a cluster have to see.
    """

    def __init__(self, path: Path):
        self.path, self.folder = path, Path(f"{path}.shards")
        self._parts = MarkedParts(self.folder, "lines")

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
        return self._parts.is_done(shard.number, shard.lines)

    def write(self, shard: Shard, content: bytes) -> None:
        """Writes what was made of a shard, and marks it done.

        Raises:
            InputError: if it cannot be written.
        """

        def fill(file: BinaryIO) -> None:
            file.write(content)

        self._parts.write(shard.number, shard.lines, fill)

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
                    file.write(self._parts.checked(shard.number, shard.lines).read_bytes())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        shutil.rmtree(self.folder)
