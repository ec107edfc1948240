"""Opening files that may be compressed, and noticing when they are damaged or change while they are read."""

import io
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from ...console.input_error import InputError


class _XzFile:
    """Decompresses `.xz`.

    Like `lzma.open`, but damage at the beginning of the second or a later stream of a file is an error: `lzma.open`
    takes it for the end of the file, and silently leaves out the rest.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._stream = lzma.LZMADecompressor()

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none only at the end."""
        while True:
            compressed = b""
            if self._stream.eof:
                compressed = self._stream.unused_data or self._file.read(io.DEFAULT_BUFFER_SIZE)
                if not compressed:
                    return b""
                self._stream = lzma.LZMADecompressor()
            elif self._stream.needs_input:
                compressed = self._file.read(io.DEFAULT_BUFFER_SIZE)
                if not compressed:
                    raise EOFError("it ends in the middle of the compressed data")
            if content := self._stream.decompress(compressed, size):
                return content


# pyarrow is the strictest reader of these three. Python's bz2 takes damage at the beginning of a later stream for the
# end of the file, and the package zstandard takes a file that is cut off for a complete one.
_DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": partial(pa.CompressedInputStream, compression="gzip"),
    ".xz": _XzFile,
    ".zst": partial(pa.CompressedInputStream, compression="zstd"),
    ".bz2": partial(pa.CompressedInputStream, compression="bz2"),
}
COMPRESSIONS = tuple(_DECOMPRESSORS)
"""Endings of compressed files."""


def without_compression(path: Path) -> Path:
    """The path without the ending of its compression: `a.tsv` of `a.tsv.xz`."""
    return path.with_suffix("") if path.suffix in COMPRESSIONS else path


def find_file(path: Path) -> Path:
    """The file of that name, or with the ending of a compression behind it.

    Raises:
        InputError: if there is none, or if it is a folder, a pipe or a device: a file is read more than once.
    """
    with readable(path):
        for candidate in (path, *(Path(f"{path}{ending}") for ending in COMPRESSIONS)):
            if candidate.is_file():
                return candidate
        if path.exists():
            raise InputError(f"{path} is a {'folder' if path.is_dir() else 'pipe or a device'}; it must be a file")
    raise InputError(f"there is no {path} (nor {', '.join(COMPRESSIONS[:-1])} or {COMPRESSIONS[-1]} of it)")


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Opens a file to read bytes from; `.gz`, `.xz`, `.zst` and `.bz2` are decompressed on the way.

    The object has `read(size)`, which may return fewer bytes, and should be read in blocks: it need not have
    `readline`.

    Raises:
        InputError: if it cannot be opened or read, if its compressed content is damaged or cut off, or if it has
            changed between the opening and the end of the `with` block.
    """
    with unchanged(path), readable(path), path.open("rb") as file:
        if path.suffix not in COMPRESSIONS:
            yield file
        elif path.stat().st_size:
            yield _DECOMPRESSORS[path.suffix](file)
        else:
            raise EOFError("it has 0 bytes")  # which some decompressors take for an empty text


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Raises an `InputError` if the file is another at the end of the `with` block than it was at the beginning."""
    before = _stamp(path)
    yield
    if _stamp(path) != before:
        raise InputError(f"{path} changed while it was read; start again when it is complete")


def _stamp(path: Path) -> tuple[int, int, int]:
    with readable(path):
        status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Makes an `InputError` of a failure to read `path`."""
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            reason = error.strerror  # of the operating system: the content is not to blame
        else:
            reason = f"{error}; it is damaged or incomplete, fetch it again"
        raise InputError(f"{path} cannot be read: {reason}") from error
