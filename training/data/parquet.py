"""Parquet: text in one or two columns of a file, or of a folder of files."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..input_error import InputError
from .bad_lines import BadLines
from .chunks import CHARACTERS_A_CHUNK, ROWS_A_CHUNK, pair_chunk, text_chunk
from .files import readable, unchanged
from .lines import BLOCK_BYTES, LONGEST_LINE
from .tables import listing


@dataclass(frozen=True, kw_only=True)
class ParquetFile:
    """One column, of which each value is a document, or two: source and target."""

    path: Path
    """The file, or a folder of which the files `*.parquet` are read, in the order of their names."""

    columns: tuple[str, ...]
    """One or two columns of strings; `translation.en` is the field `en` of the struct `translation`."""

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

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
        is_empty = True
        for path in self.files():
            rows_before = 0
            for values in _read_columns(path, self.columns):
                is_empty = False
                good = self._good_rows(values, path, rows_before, bad)
                rows_before += len(values[0])
                if len(good[0]):
                    yield pair_chunk(*good) if len(good) == 2 else text_chunk(*good)
        if is_empty:
            raise InputError(f"{self.path} is empty; it must have rows")

    def _good_rows(
        self, columns: list[pa.StringArray], path: Path, rows_before: int, bad: BadLines
    ) -> list[pa.StringArray]:
        if all(map(_is_text, columns)):
            return columns
        is_good = []
        rows = zip(*(values.cast(pa.binary()).to_pylist() for values in columns), strict=True)
        for number, row in enumerate(rows, start=rows_before + 1):
            faults = [
                (column, fault) for column, value in zip(self.columns, row, strict=True) if (fault := _fault(value))
            ]
            is_good.append(not faults)
            if faults:
                column, (reason, detail) = faults[0]
                bad.report(f"{path}, row {number}", reason, f"column '{column}' {detail}")
        return [values.filter(pa.array(is_good)) for values in columns]


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
            names = listing(leaf.path for leaf in leaves if leaf.max_repetition_level == 0)  # above 0: inside a list
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


def _is_text(values: pa.StringArray) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:  # not UTF-8
        return False
    return (
        values.null_count == 0
        and not pc.any(pc.match_substring(values, "\0")).as_py()
        and pc.max(pc.binary_length(values)).as_py() <= LONGEST_LINE
    )


def _fault(value: bytes | None) -> tuple[str, str] | None:
    """The reason and the detail of what keeps a value from being text."""
    if value is None:
        return "null", "is null; it must be a string"
    if len(value) > LONGEST_LINE:
        return "line too long", f"has more than {LONGEST_LINE:,} bytes; it must be a sentence or a document"
    if 0 in value:
        return "NUL byte", f"has NUL at byte {value.index(0) + 1}; a text has none"
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return "not UTF-8", f"has byte 0x{value[error.start]:02x} at byte {error.start + 1}, which is not UTF-8"
    return None
