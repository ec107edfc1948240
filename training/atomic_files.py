"""Files and folders that are written whole or not at all, under a temporary name that is then changed."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .console.input_error import InputError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Makes an `InputError` of a failure to write `path`, be it a missing right or a full disk."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {error.filename or path}: {error.strerror or error}") from error
    except Exception as error:
        # The writers of torch and safetensors are not Python, and tell of a full disk by the words alone.
        reason = str(error)
        if "(os error" not in reason and "inline_container" not in reason:
            raise
        raise InputError(f"cannot write {path}, perhaps because the disk is full: {reason.splitlines()[0]}") from error


def replace_folder(folder: Path, write: Callable[[Path], Any]) -> None:
    """Lets `write` fill a temporary folder, which then takes the place of `folder`.

    Raises:
        InputError: if it cannot be written; what was there before is still there.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is no folder; give the name of one, or of nothing that is there")
    temporary = partial_path(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with writing(folder):
            temporary.mkdir(parents=True)
            write(temporary)
            _sync(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if folder.exists():
        remove_folder(folder, temporary_name=folder.with_name(f"{folder.name}.old.partial"))
    temporary.rename(folder)


def _sync(folder: Path) -> None:
    """Waits until a folder is on the disk: a name that survives a power failure must not stand for empty files."""
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_folder(folder: Path, temporary_name: Path | None = None) -> None:
    """Deletes a folder that must not be taken for a complete one if this is interrupted."""
    shutil.rmtree(folder.rename(temporary_name or partial_path(folder)))


def partial_path(path: Path) -> Path:
    """The temporary name under which a file or a folder is written."""
    return path.with_name(f"{path.name}.partial")


def check_replaceable(path: Path) -> None:
    """Raises InputError if a path is a device, a pipe or the like: a file would take its place, /dev/null's too."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a device or a pipe; give the name of a file")


def replace_file(path: Path, content: str | bytes) -> None:
    """Writes a file whole or not at all; text as UTF-8.

    Raises:
        InputError: if it cannot be written; what was there before is still there.
    """
    check_replaceable(path)
    temporary = partial_path(path)
    try:
        with writing(path):
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(path)
