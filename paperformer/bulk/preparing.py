"""Reading, cleaning and tokenising a training corpus by shards; what comes of it is the same to the byte.

Each shard is examined by itself: read, normalised, checked, compared with the evaluation sets, and the hashes taken by
which duplicates are found. Then one process goes through the shards in their order, leaves out duplicates, and writes
the corpus. Tokenising divides the corpus anew, and joins what was made of the shards.

    CACHE/text-KEY.shards/     what was made of the shards of text-KEY, until that is complete (see `marked_parts`)
    CACHE/tokens-KEY.shards/   likewise
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.lib.format import read_array

from ..training.atomic_files import writing
from ..training.console.input_error import InputError
from ..training.console.progress import ProgressBar, say
from ..training.data.cleaning.cleaner import Cleaner, RowCleaner
from ..training.data.corpus import ChunkRange, TextWork, save_text, source_text
from ..training.data.readers.reader import Reader, divide
from ..training.data.text.bad_lines import BadLines
from ..training.data.token_store import id_type
from ..training.data.tokenizing import Pieces, TokenWork
from .marked_parts import MarkedParts

EXAMINED, ENCODED = "examined", "ids"


@dataclass(frozen=True)
class TextShard:
    """A part of one of the sources."""

    number: int
    """From 0, in the order of the corpus."""
    source: int
    """From 0."""
    reader: Reader
    lines: int
    """That shards were asked to have."""

    @property
    def what(self) -> list[int]:
        """Tells it from shards of the same number that were cut otherwise."""
        return [self.source, self.lines]


@dataclass(frozen=True)
class TokenShard:
    """A part of a corpus."""

    number: int
    """From 0."""
    chunks: ChunkRange
    is_last: bool

    @property
    def what(self) -> list[int]:
        """Tells it from shards of the same number that were cut otherwise."""
        return [self.chunks.start, self.chunks.rows]


AnyShard = TypeVar("AnyShard", TextShard, TokenShard)


class DoEach(Protocol):
    """Does shards somewhere; the first argument makes there what does a shard, and says how many rows it had."""

    def __call__(
        self, make: Callable[[], Callable[[AnyShard], int]], items: Sequence[AnyShard]
    ) -> Iterable[tuple[AnyShard, int]]: ...


class ShardedPreparation:
    """Writes clean text and tokens by shards.

    Args:
        do: does them.
        shard_lines: lines of a shard. What cannot be read from the middle is one shard, however long.
        begin: is called before anything is read.

    Raises:
        InputError: if there would be none in a shard.
    """

    def __init__(self, do: DoEach, shard_lines: int, begin: Callable[[], object] = lambda: None):
        if shard_lines < 1:
            raise InputError(f"shard_lines is {shard_lines}; it must be at least 1")
        self._do, self._shard_lines, self.begin = do, shard_lines, begin

    def write_text(self, folder: Path, work: TextWork) -> None:
        """Fills an empty folder as `corpus.write_text` does.

        Raises:
            InputError: if something cannot be read or written; what is done stays.
        """
        divided = [
            (number, part)
            for number, (_, reader) in enumerate(work.sources)
            for part in divide(reader, self._shard_lines)
        ]
        shards = [
            TextShard(number, source, reader, self._shard_lines) for number, (source, reader) in enumerate(divided)
        ]
        parts = self._parts(folder, EXAMINED)
        self._do_missing(parts, shards, partial(_TextWorker, work, Path.cwd(), parts.folder), f"clean {work.field}")
        cleaner = work.cleaner()
        facts: list[dict[str, Any]] = []

        def clean_text() -> Iterator[pa.RecordBatch]:
            with ProgressBar(total=len(shards), desc=f"join {work.field}", unit=" shards") as bar:
                for number, own in groupby(shards, lambda shard: shard.source):
                    source, reader = work.sources[number]
                    bad = BadLines(skip=work.skip_bad_lines)
                    yield from source_text(source, reader, _clean_shards(own, parts, cleaner, bad, bar), bad, facts)

        save_text(folder, clean_text(), facts, cleaner)

    def encode(self, folder: Path, work: TokenWork) -> Pieces:
        """Encodes a corpus as `work.encode` does, for the folder that is to be filled with it.

        Raises:
            InputError: as `write_text`.
        """
        divided = list(work.corpus.divide(self._shard_lines))
        shards = [TokenShard(number, chunks, number == len(divided) - 1) for number, chunks in enumerate(divided)]
        parts = self._parts(folder, ENCODED)
        self._do_missing(parts, shards, partial(_TokenWorker, work, Path.cwd(), parts.folder), "tokenize")
        with ProgressBar(total=len(shards), desc="join tokens", unit=" shards") as bar:
            for shard in shards:
                with parts.checked(shard.number, shard.what).open("rb") as file:
                    while file.peek(1):
                        yield read_array(file, allow_pickle=False), read_array(file, allow_pickle=False)
                bar.update(1)

    def finish(self, cache: Path) -> None:
        """Removes what was made of shards of which a cache has the whole."""
        for shards in cache.glob("*.shards"):
            if shards.with_suffix("").is_dir():
                shutil.rmtree(shards)

    def _parts(self, folder: Path, kind: str) -> MarkedParts:
        parts = MarkedParts(folder.with_suffix(".shards"), kind)  # what is unfinished has a suffix too
        with writing(parts.folder):
            parts.folder.mkdir(exist_ok=True)
        return parts

    def _do_missing(
        self,
        parts: MarkedParts,
        shards: Sequence[AnyShard],
        make: Callable[[], Callable[[AnyShard], int]],
        described: str,
    ) -> None:
        left = [shard for shard in shards if not parts.is_done(shard.number, shard.what)]
        done = len(shards) - len(left)
        if done > 0:
            say(f"{described}: going on behind {done:,} of {len(shards):,} shards, which are done")
        try:
            with ProgressBar(total=len(shards), initial=done, desc=described, unit=" shards") as bar:
                for _ in self._do(make, left) if left else ():
                    bar.update(1)
        except BaseException:
            finished = sum(parts.is_done(shard.number, shard.what) for shard in shards)
            found = f"{finished:,} of {len(shards):,} shards are in {parts.folder}"
            say(f"{found}; the same command goes on with the others")
            raise


def do_here(make: Callable[[], Callable[[AnyShard], int]], items: Sequence[AnyShard]) -> Iterator[tuple[AnyShard, int]]:
    """Does shards in this process."""
    do = make()
    for item in items:
        yield item, do(item)


class _TextWorker:
    """Examines shards of text.

    Args:
        work: what they are parts of.
        place: the folder from which its files are named.
        folder: of `MarkedParts`.
    """

    def __init__(self, work: TextWork, place: Path, folder: Path):
        os.chdir(place)
        self._work, self._leaks, self._parts = work, work.leaks(), MarkedParts(folder, EXAMINED)

    def __call__(self, shard: TextShard) -> int:
        """Does a shard, and says how many rows were read."""
        work = self._work
        cleaner = RowCleaner(work.cleaning, work.languages, self._leaks, identifies=True)
        bad = BadLines(skip=work.skip_bad_lines)

        def fill(file: BinaryIO) -> dict[str, Any]:
            writer = None
            for chunk in cleaner.examine_all(shard.reader.chunks(bad)):
                writer = writer or pa.ipc.new_stream(file, chunk.schema)
                writer.write_batch(chunk)
            if writer:
                writer.close()
            return {"cleaning": cleaner.report.to_dict(), "bad_lines": dict(bad.counts), "places": bad.places}

        self._parts.write(shard.number, shard.what, fill)
        return cleaner.report.rows


class _TokenWorker:
    """Encodes shards of a corpus; takes what `_TextWorker` does."""

    def __init__(self, work: TokenWork, place: Path, folder: Path):
        os.chdir(place)
        self._work, self._parts = work, MarkedParts(folder, ENCODED)

    def __call__(self, shard: TokenShard) -> int:
        """Does a shard, and says how many rows it has."""
        dtype = id_type(self._work.vocab_size)
        chunks = self._work.corpus.chunks(shard.chunks)

        def fill(file: BinaryIO) -> None:
            for ids, places in self._work.encode(chunks, is_first=shard.number == 0, is_last=shard.is_last):
                np.save(file, ids.astype(dtype))
                np.save(file, places)

        self._parts.write(shard.number, shard.what, fill)
        return shard.chunks.rows


def _clean_shards(
    shards: Iterable[TextShard], parts: MarkedParts, cleaner: Cleaner, bad: BadLines, bar: ProgressBar
) -> Iterator[pa.RecordBatch]:
    """The clean text of the shards of a source, in order; what was left out of them is added to `bad`."""
    for shard in shards:
        path, facts = parts.checked(shard.number, shard.what), parts.facts(shard.number)
        bad.add(facts["bad_lines"], facts["places"])
        yield from cleaner.clean_part(_examined(path), facts["cleaning"])
        bar.update(1)


def _examined(path: Path) -> Iterator[pa.RecordBatch]:
    if path.stat().st_size:  # not of a shard in which there was no row
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            yield from stream
