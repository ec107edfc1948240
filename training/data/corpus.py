"""Clean text on disk: what the sources of a split hold, in Arrow files that are mapped into memory, with a report.

A corpus is made once and cached by the content of its sources and by everything that was asked to be done with them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
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
from .text.chunks import DOMAIN
from .text.chunks import with_domains as add_domains
from .text.files import unchanged

FORMAT = 1  # of the folder; part of its name
"""Raised when readers or the cleaner come to give other text for the same file."""


class NothingLeftError(InputError):
    """Of some sources no row is left."""


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

    def chunks(self) -> Iterator[pa.RecordBatch]:
        """The rows in order. They are read, not mapped: what was read does not stay in resident memory."""
        with pa.OSFile(str(self.folder / "text.arrow")) as file, pa.ipc.open_stream(file) as stream:
            yield from stream

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


def build_corpus(
    cache: Path,
    field: str,
    sources: Sequence[tuple[Source, Reader]],
    cleaning: Cleaning,
    languages: tuple[str, ...],
    *,
    skip_bad_lines: bool = False,
    held_out: Sequence["Corpus"] = (),
    with_domains: bool = False,
) -> Corpus:
    """The clean text of some sources: found in the cache, or read, cleaned and written there.

    Args:
        cache: folder of the caches.
        field: the recipe's field that names the sources, for messages.
        sources: what to read.
        cleaning: what to leave out.
        languages: codes of the source and the target language, or of the text's.
        skip_bad_lines: whether lines that cannot be used are left out and counted instead of being an error.
        held_out: the evaluation sets, whose sentences must not be in this corpus if `cleaning` has a leak check.
        with_domains: whether it has a column `domain`, which the chunks of some sources have.

    Raises:
        InputError: if a source cannot be read or holds a bad line, if nothing is left, or if the disk is full.
    """
    files = [reader.files() for _, reader in sources]

    def write(folder: Path) -> None:
        cleaner = Cleaner(cleaning, languages, _leaks(cleaning, held_out))
        bad = BadLines(skip=skip_bad_lines)
        facts = list(_write_text(folder, sources, cleaner, bad, field, with_domains=with_domains))
        report = {"sources": facts, "cleaning": cleaner.report.to_dict()}
        (folder / "report.json").write_text(json.dumps(report, indent=2, ensure_ascii=False), "utf-8")
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
            **({"domains": [source.domain_column for source, _ in sources]} if with_domains else {}),
            "held_out": [corpus.folder.name for corpus in held_out] if cleaning.leak_check else [],
        }
        corpus = Corpus(cached_folder(cache, "text", ingredients, write))
    if len(corpus) == 0:
        names = ", ".join(reader.name for _, reader in sources)
        raise NothingLeftError(f"{field}: nothing is left of {names}; {corpus.folder / 'report.json'} says why")
    return corpus


def _leaks(cleaning: Cleaning, held_out: Sequence[Corpus]) -> Leaks | None:
    if not cleaning.leak_check:
        return None
    return Leaks(chain.from_iterable(corpus.chunks_without_tags() for corpus in held_out))


def _identity(source: Source, reader: Reader) -> Any:
    """What a source's text depends on besides the content of its files: all fields of its reader, for example."""
    whole = reader.reader if isinstance(reader, HeldOut) else reader
    return [repr(reader), source.tag, whole.identity() if isinstance(whole, HubDataset) else version("babel")]


def _write_text(
    folder: Path,
    sources: Sequence[tuple[Source, Reader]],
    cleaner: Cleaner,
    bad: BadLines,
    field: str,
    *,
    with_domains: bool,
) -> Iterator[dict[str, Any]]:
    """Writes the clean rows of all sources; yields the facts of each."""
    with (
        pa.OSFile(str(folder / "text.arrow"), "wb") as file,
        ProgressBar(desc=f"clean {field}", unit=" rows") as bar,
    ):
        writer = None
        for source, reader in sources:
            kept = documents = 0
            for clean in cleaner.clean_all(_counted(reader.chunks(bad), bar)):
                if with_domains and DOMAIN not in clean.schema.names:
                    clean = add_domains(clean, [""] * len(clean))
                writer = writer or pa.ipc.new_stream(file, clean.schema)
                writer.write_batch(_with_tag(clean, source.tag))
                kept += len(clean)
                if "begins" in clean.schema.names:
                    documents += clean.column("begins").true_count
            yield {
                "name": reader.name,
                "tag": source.tag,
                "kept": kept,
                "documents": documents,
                "bad_lines": dict(bad.counts),
                "places": dict(bad.places),
            }
            bad.counts.clear()
            bad.places.clear()
        if writer:
            writer.close()


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
        leaks = _leaks(self.cleaning, self.held_out)
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
