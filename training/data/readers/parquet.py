"""Parquet: text in one or two columns of a file, or of a folder of files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...console.input_error import InputError
from ..text.bad_lines import BadLines
from ..text.chunks import CHARACTERS_A_CHUNK, ROWS_A_CHUNK, chunk_of_columns
from ..text.columns import good_rows
from ..text.files import readable, unchanged
from ..text.lines import BLOCK_BYTES, LONGEST_LINE
from .reader import FileFormat, FileReader, list_names, require_any


@dataclass(frozen=True, kw_only=True)
class ParquetFile(FileReader):
    """One column, of which each value is a document, or two: source and target."""

    path: Path
    """The file, or a folder of which the files `*.parquet` are read, in the order of their names."""

    columns: tuple[str, ...]
    """One or two columns of strings; `translation.en` is the field `en` of the struct `translation`."""

    domain: str | None = field(default=None, repr=False)
    """A column of strings that says the domain of each row."""

    is_part: bool = field(default=False, repr=False)
    """Whether it is one of a folder's files, some of which may be empty."""

    def files(self) -> list[Path]:
        """The file, or the files of the folder."""
        with readable(self.path):
            if self.path.is_file():
                return [self.path]
            files = sorted(path for path in self.path.glob("*.parquet") if path.is_file())
            if not files:
                fault = "is a folder without files *.parquet" if self.path.is_dir() else "is not there, or is no file"
                raise InputError(f"{self.path} {fault}")
            return files

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The rows."""
        chunks = self._chunks(bad) if self.is_part else require_any(self._chunks(bad), self.path, "rows")
        return filter(len, chunks)  # of some, no row may be left

    def divide(self, lines: int) -> Sequence[Self]:
        """The files of a folder, whatever their lines."""
        files = self.files()
        return [replace(self, path=path, is_part=True) for path in files] if len(files) > 1 else [self]

    def _chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        for path in self.files():
            rows_before = 0
            wanted = self.columns + (() if self.domain is None else (self.domain,))
            for values in _read_columns(path, wanted):
                named = dict(zip(wanted, values, strict=True))
                if self.domain is not None:
                    named[self.domain] = named[self.domain].fill_null("")
                columns = good_rows(named, str(path), rows_before, bad, LONGEST_LINE)
                rows_before += len(values[0])
                yield chunk_of_columns(columns, has_domain=self.domain is not None)


PARQUET = FileFormat(
    name="parquet",
    endings=(".parquet",),
    reader=lambda path, request: ParquetFile(path=path, columns=request.column_names, domain=request.domain_name),
    has_columns=True,
    in_folders="*.parquet",
)


def _read_columns(path: Path, columns: tuple[str, ...]) -> Iterator[list[pa.StringArray]]:
    """The columns, some rows at a time. The strings may be null, and their bytes may be anything."""
    with _damage_explained(path), unchanged(path), path.open("rb") as content:
        # With a buffer, and not read ahead, a row group is never in memory as a whole.
        file = pq.ParquetFile(content, buffer_size=BLOCK_BYTES, pre_buffer=False, page_checksum_verification=True)
        keys = [_find_column(column, file, path) for column in columns]
        for batch in file.iter_batches(_rows_a_batch(file.metadata), columns=list(columns)):
            yield [_strings(batch, column_keys) for column_keys in keys]


@contextmanager
def _damage_explained(path: Path) -> Iterator[None]:
    try:
        yield
    # Arrow's own, and what Python makes of sizes and names that are out of bounds.
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} cannot be read as Parquet; it may be damaged or incomplete: {reason}") from error


def _find_column(column: str, file: pq.ParquetFile, path: Path) -> list[str]:
    """The column's own name, or that of a struct and those of the fields in it."""
    kind = pa.struct(list(file.schema_arrow))
    keys = [column] if column in kind.names else column.split(".")
    for key in keys:
        count = kind.names.count(key) if pa.types.is_struct(kind) else 0
        if count != 1:
            leaves = (file.schema.column(index) for index in range(len(file.schema)))
            names = list_names(leaf.path for leaf in leaves if leaf.max_repetition_level == 0)  # above 0: inside a list
            raise InputError(
                f"{path} has {'several columns' if count else 'no column'} '{column}'; its columns are {names}"
            )
        kind = kind.field(key).type
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(text) or pa.types.is_large_string(text) or pa.types.is_string_view(text)):
        raise InputError(f"{path}: column '{column}' has the type {kind}; it must be string")
    return keys


def _rows_a_batch(metadata: pq.FileMetaData) -> int:
    """How many rows are, in the row group where they are longest, about as long as a chunk should be."""
    # Of all columns together: to ask a damaged file for a single one can abort the whole process.
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    bytes_a_row = max([group.total_byte_size / group.num_rows for group in groups if group.num_rows > 0], default=1)
    return min(ROWS_A_CHUNK, max(1, int(CHARACTERS_A_CHUNK / max(1, bytes_a_row))))


def _strings(batch: pa.RecordBatch, keys: list[str]) -> pa.StringArray:
    values = batch.column(keys[0])
    for key in keys[1:]:
        values = pc.struct_field(values, key)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary.take(values.indices)  # checks the bounds, unlike a cast
    return values.cast(pa.string())
