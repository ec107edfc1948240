"""Chunks: Arrow record batches of some thousand rows, the form in which text flows from readers to the tokenizer.

A chunk of sentence pairs has the columns `source` and `target`. A chunk of running text has `text`, and `begins`, which
is true where a row begins a document and false where it continues the one before. Of a test split there may be
`domain` besides. All text is Unicode without lone surrogates; no value is null.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Row = TypeVar("Row", bound=tuple[Any, ...])

PAIR_SCHEMA = pa.schema([("source", pa.string()), ("target", pa.string())])
TEXT_SCHEMA = pa.schema([("text", pa.string()), ("begins", pa.bool_())])

DOMAIN = "domain"
ROWS_A_CHUNK = 10_000
CHARACTERS_A_CHUNK = 8_000_000  # fewer rows where they are long, so that a chunk stays in the tens of megabytes


def pair_chunk(sources: Sequence[str], targets: Sequence[str]) -> pa.RecordBatch:
    """A chunk of sentence pairs."""
    return pa.record_batch([pa.array(sources, pa.string()), pa.array(targets, pa.string())], schema=PAIR_SCHEMA)


def text_chunk(texts: Sequence[str], begins: Sequence[bool] | None = None) -> pa.RecordBatch:
    """A chunk of running text; by default every row is a document of its own."""
    flags = [True] * len(texts) if begins is None else begins
    return pa.record_batch([pa.array(texts, pa.string()), pa.array(flags, pa.bool_())], schema=TEXT_SCHEMA)


def chunk_of_columns(columns: Sequence[Any], *, has_domain: bool = False) -> pa.RecordBatch:
    """A chunk of pairs or of text, by how many columns there are; the last may be the domain of each row."""
    texts = columns[:-1] if has_domain else columns
    chunk = pair_chunk(*texts) if len(texts) == 2 else text_chunk(*texts)
    return with_domains(chunk, columns[-1]) if has_domain else chunk


def with_domains(chunk: pa.RecordBatch, domains: Sequence[str] | pa.Array) -> pa.RecordBatch:
    """A chunk with a column more, `domain`; empty where it is that of the source."""
    names = [*chunk.schema.names, DOMAIN]
    column = domains if isinstance(domains, pa.Array) else pa.array(domains, pa.string())
    return pa.record_batch([*chunk.columns, column], names=names)


def chunks_of_rows(rows: Iterable[tuple[str, ...]], *, has_domain: bool = False) -> Iterator[pa.RecordBatch]:
    """Gathers rows, (source, target) or (text,), into chunks; each may have its domain at its end."""
    for gathered in _gathered(rows, lambda row: sum(map(len, row))):
        yield chunk_of_columns(_columns(gathered), has_domain=has_domain)


def chunks_of_pieces(pieces: Iterable[tuple[str, bool]]) -> Iterator[pa.RecordBatch]:
    """Gathers pieces of documents, each with whether it begins one, into chunks."""
    for gathered in _gathered(pieces, lambda piece: len(piece[0])):
        yield text_chunk(*_columns(gathered))


def _columns(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    # Not zip(*rows), which makes an iterator a row: they keep the garbage collector busy for longer than all the rest.
    return [[row[column] for row in rows] for column in range(len(rows[0]))]


def _gathered(rows: Iterable[Row], size: Callable[[Row], int]) -> Iterator[list[Row]]:
    gathered: list[Row] = []
    characters = 0
    for row in rows:
        gathered.append(row)
        characters += size(row)
        if len(gathered) == ROWS_A_CHUNK or characters >= CHARACTERS_A_CHUNK:
            yield gathered
            gathered, characters = [], 0
    if gathered:
        yield gathered


def even_chunks(chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in chunks of 10,000, or of fewer where they are long; the same ones however they were cut before."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for chunk in chunks:
        texts = [column for column in chunk.columns if pa.types.is_string(column.type)]
        ends = np.cumsum(sum(np.asarray(pc.binary_length(column), np.int64) for column in texts))
        start = 0
        while start < len(chunk):
            before = int(ends[start - 1]) if start else 0
            enough = int(np.searchsorted(ends, before + CHARACTERS_A_CHUNK - size)) + 1
            stop = min(start + ROWS_A_CHUNK - rows, enough, len(chunk))
            waiting.append(chunk.slice(start, stop - start))
            rows, size, start = rows + stop - start, size + int(ends[stop - 1]) - before, stop
            if rows == ROWS_A_CHUNK or size >= CHARACTERS_A_CHUNK:
                yield _joined(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(chunks: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(chunks) == 1:  # joined, a slice alone would stay one: what a file has of it depends on what is beside it
        chunks = [*chunks, chunks[0].slice(0, 0)]
    return pa.concat_batches(chunks)


def tables_of_rows(chunks: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The chunks joined to tables of `rows` rows, the last one shorter."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for chunk in chunks:
        while count + len(chunk) >= rows:
            yield pa.Table.from_batches([*waiting, chunk.slice(0, rows - count)])
            chunk, waiting, count = chunk.slice(rows - count), [], 0
        if len(chunk) > 0:
            waiting.append(chunk)
            count += len(chunk)
    if waiting:
        yield pa.Table.from_batches(waiting)
