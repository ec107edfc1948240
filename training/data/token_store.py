"""Token ids of a whole corpus on disk: any row in some microseconds, and none of them held in memory.

ids.bin        all ids one after another, uint16 or uint32
lengths.bin    tokens of each sequence, uint32; a row of a table with C columns has C sequences
store.json     how many columns, rows and ids there are, and the type of ids
"""

import json
import os
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..console.input_error import InputError

Ids = NDArray[np.uint16] | NDArray[np.uint32]


class TokenStore:
    """A table of token sequences, N rows of C sequences each.

    Args:
        folder: as a `TokenWriter` has left it.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        facts = json.loads((folder / "store.json").read_text("utf-8"))
        rows, columns = facts["rows"], facts["columns"]
        self.ids = IdFile(folder / "ids.bin", np.dtype(facts["dtype"]), facts["ids"])
        """The ids of all rows, (sum of all lengths,)."""
        self.lengths: NDArray[np.uint32] = _map(folder / "lengths.bin", "uint32", rows * columns).reshape(rows, columns)
        """Tokens of each sequence, (N, C)."""
        self.starts = np.zeros(rows + 1, dtype=np.int64)
        """Where each row begins in `ids`, and where the last ends, (N + 1,)."""
        np.cumsum(self.lengths.sum(axis=1), out=self.starts[1:])

    def __len__(self) -> int:
        return len(self.lengths)

    def row(self, index: int) -> list[Ids]:
        """The C sequences of a row."""
        ids = self.ids[int(self.starts[index]) : int(self.starts[index + 1])]
        bounds = accumulate(self.lengths[index].tolist(), initial=0)
        return [ids[start:end] for start, end in pairwise(bounds)]

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenStore, (self.folder,)  # a worker process maps the files itself


class IdFile:
    """An array of ids in a file, of which slices are read when they are asked for.

    It is not mapped into memory: what an epoch has touched, which is all of it, would count as this process's memory.

    Args:
        path: the file.
        dtype: of the ids.
        count: how many there are.

    Raises:
        InputError: when a slice is taken, if the file has lost its end.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], count: int):
        self.dtype, self._count = dtype, count
        self._file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, part: slice) -> Ids:
        start, stop, _ = part.indices(self._count)
        size = self.dtype.itemsize
        content = os.pread(self._file.fileno(), (stop - start) * size, start * size)
        if len(content) < (stop - start) * size:
            raise InputError(f"{self._file.name} is cut off; delete its folder, which is made again")
        return np.frombuffer(content, dtype=self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[0 : self._count].astype(dtype or self.dtype)


def _map(path: Path, dtype: str, count: int) -> Any:
    if count == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,))


def id_type(vocab_size: int) -> np.dtype[Any]:
    """The type of ids of which every one is below that."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


class TokenWriter:
    """Writes a `TokenStore`, some rows at a time.

    Args:
        folder: an empty folder.
        columns: sequences a row.
        vocab_size: every id is below it.
    """

    def __init__(self, folder: Path, columns: int, vocab_size: int):
        self.folder, self.columns = folder, columns
        self.dtype = id_type(vocab_size)
        self.num_ids = self.num_lengths = 0

    def __enter__(self) -> "TokenWriter":
        self._ids = (self.folder / "ids.bin").open("wb")
        self._lengths = (self.folder / "lengths.bin").open("wb")
        return self

    def write_ids(self, ids: NDArray[Any]) -> None:
        """Appends ids, which `write_lengths` divides into sequences before or afterwards."""
        self._ids.write(np.ascontiguousarray(ids, dtype=self.dtype).data)
        self.num_ids += len(ids)

    def write_lengths(self, lengths: NDArray[Any]) -> None:
        """Appends the lengths of sequences, row by row."""
        self._lengths.write(np.ascontiguousarray(lengths, dtype=np.uint32).data)
        self.num_lengths += lengths.size

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ids.close()
        self._lengths.close()
        if kind is None:
            facts = {
                "columns": self.columns,
                "rows": self.num_lengths // self.columns,
                "ids": self.num_ids,
                "dtype": self.dtype.name,
            }
            (self.folder / "store.json").write_text(json.dumps(facts), "utf-8")
