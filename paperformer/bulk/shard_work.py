"""What becomes of the lines of a shard, in whatever process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..api.translators import with_prefix
from ..training.console.input_error import InputError
from ..training.data.text.line_ranges import read_range
from ..translation.checking import Window
from ..translation.line_source import Line, ReadAhead, clean_lines
from ..translation.streaming import Written, translate_stream
from .shards import Shard, ShardFolder

Notes = list[tuple[int, str]]
"""Numbers of lines, and what is odd about them."""

NOTES_KEPT = 10
"""Of a shard."""


@dataclass(frozen=True)
class LineWork:
    """What is made of lines: can be sent to another machine."""

    load: Callable[[], Window]
    """Loads the model, once in each process."""

    written: Written
    files: tuple[str, ...]
    """The input, and what else has a line for each of its lines; as every machine sees them."""

    output: str
    prefix: str | None = None
    """Put behind a tab of each line."""

    is_of_pairs: bool = False
    """Whether each line must be two texts with a tab between."""


class ShardWorker:
    """Does shards one after the other, with a model that is loaded before the first.

    Args:
        work: what to do with their lines.
    """

    def __init__(self, work: LineWork):
        self.work, self.folder = work, ShardFolder(Path(work.output))
        self._window: Window | None = None

    def do(self, shard: Shard) -> tuple[int, Notes]:
        """Does a shard, if it is not done.

        Returns:
            How many things are odd about its lines, and the first of them.
        """
        if self.folder.is_done(shard):
            return 0, []
        if self._window is None:
            self._window = self.work.load()
        notes: Notes = []
        count = 0

        def note(number: int, what: str) -> None:
            nonlocal count
            count += 1
            if len(notes) < NOTES_KEPT:
                notes.append((number, what))

        with closing(ReadAhead(self._lines(shard))) as lines:
            outputs = [
                line for found in translate_stream(self._window, lines, note, self.work.written) for line in found
            ]
        if len(outputs) != shard.lines:
            raise InputError(
                f"{self.work.files[0]}, from line {shard.first_line:,} on, has {len(outputs):,} lines where there were "
                f"{shard.lines:,}; it must not change meanwhile"
            )
        self.folder.write(shard, "".join(f"{line}\n" for line in outputs).encode())
        return count, notes

    def _lines(self, shard: Shard) -> Iterator[Line]:
        sources = [
            _read(Path(name), place, shard.first_line)
            for name, place in zip(self.work.files, shard.places, strict=True)
        ]
        for line, *others in zip(*sources, strict=True):
            for other in others:
                line = replace(line, text=f"{line.text}\t{other.text}", faults=line.faults + other.faults)
            if self.work.prefix is not None:
                line = replace(line, text=with_prefix(line.text, self.work.prefix))
            if self.work.is_of_pairs and (tabs := line.text.count("\t")) != 1:
                raise InputError(
                    f"{self.work.files[0]}, line {line.number:,} has {tabs or 'no'} tab{'s' * (tabs > 1)}; it must be "
                    "a source, a tab and its translation, or give --translations FILE"
                )
            yield line


def _read(path: Path, place: tuple[int, int], first_line: int) -> Iterator[Line]:
    blocks = read_range(path, place)
    return clean_lines(lambda _: next(blocks, b""), first_line)


def do_here(worker: ShardWorker, shards: Sequence[Shard]) -> Iterator[tuple[Shard, int, Notes]]:
    """Does shards in this process."""
    for shard in shards:
        yield shard, *worker.do(shard)


Do = Callable[[LineWork, Sequence[Shard], int], Iterator[tuple[Shard, int, Any]]]
"""Does shards by so many workers; yields them as they are done, in any order."""
