"""Clean text on disk: what the sources of a split hold, in Arrow files that are mapped into memory, with a report.

A corpus is made once and cached by the content of its sources and by everything that was asked to be done with them.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, asdict, dataclass
from functools import cached_property, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from ..console.input_error import InputError
from ..console.progress import ProgressBar
from ..recipe.cleaning import Cleaning
from .cache import cached_folder, content_hashes
from .cleaning.cleaner import Cleaner
from .cleaning.leaks import Leaks
from .hold_out import HeldOut
from .mixing import interleave
from .readers.hub_datasets import HubDataset
from .readers.reader import Reader
from .readers.sources import Source
from .text.bad_lines import BadLines
from .text.chunks import DOMAIN, even_chunks, with_domains
from .text.files import unchanged

FORMAT = 1  # of the folder; part of its name
"""Raised when readers or the cleaner come to give other text for the same file."""


class NothingLeftError(InputError):
    """Of some sources no row is left."""


@dataclass(frozen=True)
class ChunkRange:
    """Chunks of a corpus, one after another."""

    start: int
    """Where the first begins in its file, in bytes."""
    chunks: int
    rows: int


@dataclass(frozen=True)
class Corpus:
    """A split's text.

    Its folder has `text.arrow`, the rows of all sources one after another, and `report.json`.
    """

    folder: Path

    @cached_property
    def report(self) -> dict[str, Any]:
        """What was kept and left out, of each source."""
        report: dict[str, Any] = json.loads((self.folder / "report.json").read_text("utf-8"))
        return report

    @property
    def sizes(self) -> list[int]:
        """Rows of each source."""
        return [source["kept"] for source in self.report["sources"]]

    @property
    def documents(self) -> list[int]:
        """Documents of each source of running text."""
        return [source["documents"] for source in self.report["sources"]]

    def __len__(self) -> int:
        return sum(self.sizes)

    @cached_property
    def dataset(self) -> Dataset:
        """The rows as a memory-mapped data set, with columns `source` and `target`, or `text` and `begins`."""
        return Dataset.from_file(str(self.folder / "text.arrow"))

    def chunks(self, part: ChunkRange | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order, or those of a part. They are read, not mapped: what was read does not stay in resident
        memory."""
        with pa.OSFile(str(self.folder / "text.arrow")) as file, pa.ipc.open_stream(file) as stream:
            if part is None:
                yield from stream
                return
            file.seek(part.start)
            for _ in range(part.chunks):
                yield pa.ipc.read_record_batch(pa.ipc.read_message(file), stream.schema)

    def divide(self, rows: int) -> Iterator[ChunkRange]:
        """Parts of so many rows, or somewhat more, in order."""
        with pa.memory_map(str(self.folder / "text.arrow")) as file, pa.ipc.open_stream(file) as stream:
            start, chunks, size = file.tell(), 0, 0
            for chunk in stream:
                chunks, size = chunks + 1, size + len(chunk)
                if size >= rows:
                    yield ChunkRange(start, chunks, size)
                    start, chunks, size = file.tell(), 0, 0
            if chunks:
                yield ChunkRange(start, chunks, size)

    @property
    def is_parallel(self) -> bool:
        """Whether the rows are sentence pairs."""
        return "source" in self.dataset.column_names

    def chunks_without_tags(self) -> Iterator[pa.RecordBatch]:
        """The rows in order, their sources as they were before tags were put before them."""
        tags = [source["tag"] for source in self.report["sources"] if source["tag"] is not None]
        pattern = f"^({'|'.join(map(re.escape, tags))})"
        for chunk in self.chunks():
            if tags:
                untagged = pc.replace_substring_regex(chunk.column("source"), pattern, "")
                chunk = chunk.set_column(0, chunk.schema.field(0), untagged)
            yield chunk

    def texts(self, *columns: str) -> Iterator[str]:
        """Every text of some columns, to train a tokenizer on; those of a row one after another."""
        return _texts(self.chunks(), columns)


@dataclass(frozen=True)
class TextWork:
    """What a corpus is made of; can be sent to another machine that sees the same files."""

    field: str
    """The recipe's field that names the sources, for messages."""
    sources: Sequence[tuple[Source, Reader]]
    cleaning: Cleaning
    languages: tuple[str, ...]
    """Codes of the source and the target language, or of the text's."""
    _: KW_ONLY
    skip_bad_lines: bool = False
    """Whether lines that cannot be used are left out and counted instead of being an error."""
    held_out: Sequence[Corpus] = ()
    """The evaluation sets, whose sentences must not be in this corpus if `cleaning` has a leak check."""
    has_domains: bool = False
    """Whether it has a column `domain`, which the chunks of some sources have."""

    def leaks(self) -> Leaks | None:
        """What must not be in it."""
        if not self.cleaning.leak_check:
            return None
        return Leaks(chain.from_iterable(corpus.chunks_without_tags() for corpus in self.held_out))

    def cleaner(self) -> Cleaner:
        """What cleans all of its text."""
        return Cleaner(self.cleaning, self.languages, self.leaks())


WriteText = Callable[[Path, TextWork], None]
"""Fills an empty folder with the clean text of some sources, as `write_text` does."""


def build_corpus(
    cache: Path,
    field: str,
    sources: Sequence[tuple[Source, Reader]],
    cleaning: Cleaning,
    languages: tuple[str, ...],
    *,
    skip_bad_lines: bool = False,
    held_out: Sequence[Corpus] = (),
    has_domains: bool = False,
    write: WriteText | None = None,
) -> Corpus:
    """The clean text of some sources: found in the cache, or read, cleaned and written there.

    Args:
        cache: folder of the caches.
        field, sources, cleaning, languages, skip_bad_lines, held_out, has_domains: see `TextWork`.
        write: writes it; by default `write_text`, in this process.

    Raises:
        InputError: if a source cannot be read or holds a bad line, if nothing is left, or if the disk is full.
    """
    work = TextWork(
        field, sources, cleaning, languages, skip_bad_lines=skip_bad_lines, held_out=held_out, has_domains=has_domains
    )
    files = [reader.files() for _, reader in sources]

    def write_unchanged(folder: Path) -> None:
        (write or write_text)(folder, work)
        unchanging.close()  # raises before the folder counts as complete

    with ExitStack() as unchanging:  # from the hash of a file, which names the folder, to its last line
        for path in chain.from_iterable(files):
            unchanging.enter_context(unchanged(path))
        ingredients = {
            "format": FORMAT,
            "version": version("paperformer"),
            "sources": [_identity(source, reader) for source, reader in sources],
            "files": [content_hashes(paths) for paths in files],
            "cleaning": asdict(cleaning),
            "languages": languages,
            "skip_bad_lines": skip_bad_lines,
            **({"domains": [source.domain_column for source, _ in sources]} if has_domains else {}),
            "held_out": [corpus.folder.name for corpus in held_out] if cleaning.leak_check else [],
        }
        corpus = Corpus(cached_folder(cache, "text", ingredients, write_unchanged))
    if len(corpus) == 0:
        names = ", ".join(reader.name for _, reader in sources)
        raise NothingLeftError(f"{field}: nothing is left of {names}; {corpus.folder / 'report.json'} says why")
    return corpus


def _identity(source: Source, reader: Reader) -> Any:
    """What a source's text depends on besides the content of its files: all fields of its reader, for example."""
    whole = reader.reader if isinstance(reader, HeldOut) else reader
    return [repr(reader), source.tag, whole.identity() if isinstance(whole, HubDataset) else version("babel")]


def write_text(folder: Path, work: TextWork) -> None:
    """Reads and cleans the sources of a corpus, one after another, and fills its folder."""
    cleaner = work.cleaner()
    facts: list[dict[str, Any]] = []

    def clean_text() -> Iterator[pa.RecordBatch]:
        with ProgressBar(desc=f"clean {work.field}", unit=" rows") as bar:
            for source, reader in work.sources:
                bad = BadLines(skip=work.skip_bad_lines)
                clean = cleaner.clean_all(_counted(reader.chunks(bad), bar))
                yield from source_text(
                    source, reader, map(_with_domains, clean) if work.has_domains else clean, bad, facts
                )

    save_text(folder, clean_text(), facts, cleaner)


def _with_domains(chunk: pa.RecordBatch) -> pa.RecordBatch:
    return chunk if DOMAIN in chunk.schema.names else with_domains(chunk, [""] * len(chunk))


def source_text(
    source: Source, reader: Reader, chunks: Iterable[pa.RecordBatch], bad: BadLines, facts: list[dict[str, Any]]
) -> Iterator[pa.RecordBatch]:
    """The clean text of a source as a corpus has it, tags before it; adds to the facts when it is at its end.

    Args:
        source, reader: what it is.
        chunks: its clean text.
        bad: what was left out of it before.
        facts: of the sources before this one.
    """
    kept = documents = 0
    for chunk in chunks:
        kept += len(chunk)
        if "begins" in chunk.schema.names:
            documents += chunk.column("begins").true_count
        yield _with_tag(chunk, source.tag)
    facts.append(
        {
            "name": reader.name,
            "tag": source.tag,
            "kept": kept,
            "documents": documents,
            "bad_lines": dict(bad.counts),
            "places": bad.places,
        }
    )


def save_text(
    folder: Path, chunks: Iterable[pa.RecordBatch], facts: Sequence[dict[str, Any]], cleaner: Cleaner
) -> None:
    """Fills the folder of a corpus.

    Args:
        folder: empty.
        chunks: the text of all sources; how it is cut makes no difference to what is written.
        facts: of the sources; complete when the last chunk has come.
        cleaner: has cleaned it by then.
    """
    with pa.OSFile(str(folder / "text.arrow"), "wb") as file, ExitStack() as stack:
        writer = None
        for chunk in even_chunks(chunks):
            writer = writer or stack.enter_context(pa.ipc.new_stream(file, chunk.schema))
            writer.write_batch(chunk)
    report = {"sources": facts, "cleaning": cleaner.report.to_dict()}
    (folder / "report.json").write_text(json.dumps(report, indent=2, ensure_ascii=False), "utf-8")


def _counted(chunks: Iterable[pa.RecordBatch], bar: ProgressBar) -> Iterator[pa.RecordBatch]:
    for chunk in chunks:
        bar.update(len(chunk))
        yield chunk


def _with_tag(chunk: pa.RecordBatch, tag: str | None) -> pa.RecordBatch:
    if tag is None:
        return chunk
    # Without a space: what follows a user symbol is encoded as a text of its own.
    tagged = pc.binary_join_element_wise(pa.scalar(tag), chunk.column("source"), "")
    return chunk.set_column(0, chunk.schema.field(0), tagged)


def _texts(chunks: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[str]:
    for chunk in chunks:
        yield from chain.from_iterable(zip(*(chunk.column(name).to_pylist() for name in columns), strict=True))


@dataclass(frozen=True)
class TextStream:
    """The clean text of some sources, read and cleaned anew each time; nothing is written.

    Duplicates are found within a source only, and what is left out is not reported. The fields are what `build_corpus`
    takes, and `seed`, which decides with the epoch how sources are mixed.
    """

    field: str
    sources: Sequence[tuple[Source, Reader]]
    cleaning: Cleaning
    languages: tuple[str, ...]
    _: KW_ONLY
    skip_bad_lines: bool = False
    held_out: Sequence[Corpus] = ()
    seed: int = 0

    @property
    def is_parallel(self) -> bool:
        """Whether the rows are sentence pairs."""
        return len(self.languages) == 2

    def chunks(self, epoch: int = 0) -> Iterator[pa.RecordBatch]:
        """The clean rows of an epoch, the sources mixed by their weights; the same at every call with that epoch.

        Raises:
            InputError: if a source cannot be read or holds a bad line, or if nothing is left of one.
        """
        leaks = TextWork(self.field, self.sources, self.cleaning, self.languages, held_out=self.held_out).leaks()
        streams = [partial(self._read, source, reader, leaks) for source, reader in self.sources]
        yield from interleave(
            streams, [source.weight for source, _ in self.sources], np.random.default_rng((self.seed, epoch))
        )

    def _read(self, source: Source, reader: Reader, leaks: Leaks | None) -> Iterator[pa.RecordBatch]:
        # A cleaner for each reading: a small source that is read again is not full of duplicates.
        cleaner = Cleaner(self.cleaning, self.languages, leaks)
        kept = 0
        for clean in cleaner.clean_all(reader.chunks(BadLines(skip=self.skip_bad_lines))):
            kept += len(clean)
            yield _with_tag(clean, source.tag)
        if kept == 0:
            raise InputError(f"{self.field}: nothing is left of {reader.name} after cleaning")

    def texts(self, *columns: str) -> Iterator[str]:
        """Every text of some columns, to train a tokenizer on; those of a row one after another."""
        return _texts(self.chunks(), columns)
