"""Data sets of the Hugging Face Hub, through `datasets`: downloaded once and memory-mapped, or streamed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...console.input_error import InputError
from ..text.bad_lines import BadLines
from ..text.chunks import CHARACTERS_A_CHUNK, pair_chunk, text_chunk, with_domains
from ..text.columns import good_rows

ROWS_A_READ = 2_000
"""Fewer than a chunk could have: how long they are is known only when they are in memory."""


@dataclass(frozen=True, kw_only=True)
class HubDataset:
    """A split of a data set, as sentence pairs (two columns) or running text (one).

    Everything that goes wrong with it, from a wrong name to a lost connection, is an `InputError`.
    """

    name: str
    """On the Hub; or a local folder of Parquet, JSON lines, CSV or text files."""
    config: str | None
    split: str
    """`train`; if it is not streamed also a part, such as `train[:10%]`."""
    columns: tuple[str, ...]
    """With dots into nested ones: `translation.en`; of these, the language's code is enough."""
    streaming: bool = False
    """Read it over the network each time, without keeping it on disk."""
    revision: str | None = None
    """Branch, tag or commit."""
    documents: Literal["each", "joined"] = "each"
    """Running text only: whether every row is a document, or all of them run on as one."""
    domain: str | None = field(default=None, repr=False)
    """The column that says the domain of each row."""

    @property
    def _place(self) -> str:
        return f"data set {self.name}, {f'config {self.config}, ' if self.config else ''}split {self.split}"

    def files(self) -> list[Path]:
        return []

    def identity(self) -> str:
        """What its text depends on: the data set, and the commit it is at (of a local folder, its files' dates).

        Raises:
            InputError: if the data set cannot be found.
        """
        from datasets import load_dataset_builder  # takes over a second to import

        with self._failures():
            builder = load_dataset_builder(self.name, self.config, revision=self.revision)
        return f"{self.name}/{builder.config_id}/{builder.config.version}/{builder.hash}/{self.split}"

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        rows = 0
        begins_document = True
        for table in self._tables():
            columns = self._select(table)
            for start, stop in _spans(list(columns.values())):
                texts = {name: column.slice(start, stop - start).combine_chunks() for name, column in columns.items()}
                arrays = good_rows(texts, self._place, rows + start, bad)
                if not len(arrays[0]):
                    continue
                *arrays, domains = arrays if self.domain is not None else (*arrays, None)
                if len(arrays) == 2:
                    chunk = pair_chunk(*arrays)
                else:
                    begins = np.full(len(arrays[0]), self.documents == "each")
                    begins[0] |= begins_document
                    begins_document = False
                    chunk = text_chunk(arrays[0], begins.tolist())
                yield chunk if domains is None else with_domains(chunk, domains)
            rows += len(table)

    def _tables(self) -> Iterator[pa.Table]:
        """The rows as they are stored."""
        from datasets import load_dataset

        with self._failures():
            dataset: Any = load_dataset(
                self.name, self.config, split=self.split, revision=self.revision, streaming=self.streaming
            )
            tables = dataset.with_format("arrow").iter(batch_size=ROWS_A_READ)
        while True:
            with self._failures():
                table = next(tables, None)
            if table is None:
                return
            yield table

    def _select(self, table: pa.Table) -> dict[str, pa.ChunkedArray]:
        """The columns that were asked for, by their full names."""
        while any(pa.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
        names = table.column_names
        selected = {}
        for asked in (*self.columns, *filter(None, [self.domain])):
            name = next((name for name in (asked, f"translation.{asked}") if name in names), None)
            if name is None:
                raise InputError(f"{self._place}: there is no column {asked}; there are {', '.join(names)}")
            column = table.column(names.index(name))
            if not _holds_text(column.type):
                raise InputError(f"{self._place}: column {name} holds {column.type}; it must hold text")
            selected[name] = column.cast(pa.large_string())
            if asked == self.domain:
                selected[name] = pc.fill_null(selected[name], "")
        return selected

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Makes an `InputError` of whatever `datasets` raises."""
        from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

        try:
            yield
        except Exception as error:  # a dozen types, from ValueError to those of the network libraries
            cause = error.__cause__ if isinstance(error, DatasetGenerationError) and error.__cause__ else error
            reason = " ".join(str(cause).partition("\nExample of usage")[0].split()) or type(cause).__name__
            if isinstance(error, DatasetNotFoundError):
                reason += "; check the name, and log in with `hf auth login` if it is private or gated"
            elif isinstance(error, ConnectionError):
                reason += "; check the name and the network"
            raise InputError(f"{self._place}: {reason}") from error


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_null))


def _spans(columns: Sequence[pa.ChunkedArray]) -> Iterator[tuple[int, int]]:
    """Ranges of rows, each with no more text than a chunk should have, or of one row."""
    sizes = sum(pc.binary_length(column).fill_null(0).to_numpy() for column in columns)  # (rows,), bytes
    before = np.cumsum(sizes) - sizes
    edges = np.flatnonzero(np.diff(before // CHARACTERS_A_CHUNK)) + 1
    yield from zip([0, *edges.tolist()], [*edges.tolist(), len(columns[0])], strict=True)
