"""One process at a time writes a run, a sweep or a file."""

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from .atomic_files import writing
from .console.input_error import InputError

SECONDS_OF_ORPHANS = 15.0
"""How long worker processes, which have the lock of the process that started them, may outlive it when it is killed."""


@contextmanager
def hold_lock(path: Path, *, otherwise: str = "give another --name") -> Iterator[None]:
    """A context in which no other process is in one with the same path, here or on machines that share the disk.

    The lock is the operating system's on an open file, so that it ends with the process, however that ends. Who holds
    it is in a file beside it. Both, and folders that had to be made for them, are gone afterwards.

    Args:
        path: of what is written; the files are .NAME.lock and .NAME.holder beside it.
        otherwise: what may be done instead of waiting, for the message.

    Raises:
        InputError: if another process holds it; the message says which, where, and since when. Also if nothing can be
            written there.
    """
    lock_path, holder = (path.with_name(f".{path.name}.{kind}") for kind in ("lock", "holder"))
    made = [folder for folder in path.parents if not folder.exists()]
    with writing(path):
        if path.parent.is_file():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path.parent))
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(lock_path)
        try:
            lock.acquire(timeout=SECONDS_OF_ORPHANS if _is_gone(holder) else 0)
        except Timeout:
            lock_path.touch()  # a folder in which no file can be made looks to filelock like one that is held
            raise InputError(f"{path} is being written by {_describe(holder)}; wait for it, or {otherwise}") from None
    try:
        with writing(path):
            started = datetime.now().isoformat(" ", "minutes")
            holder.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": started}))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock_path.unlink(missing_ok=True)  # while it is held: whoever takes it next makes another
        lock.release()
        for folder in made:  # the innermost first; those with a run in them stay
            with suppress(OSError):
                folder.rmdir()


def _describe(holder: Path) -> str:
    try:
        facts = json.loads(holder.read_text("utf-8"))
        return f"process {facts['pid']} on {facts['host']} since {facts['since']}"
    except (OSError, ValueError, KeyError):  # between taking the lock and writing this
        return "another process"


def _is_gone(holder: Path) -> bool:
    """Whether the process that a file names was one of this machine, and is no more."""
    try:
        facts = json.loads(holder.read_text("utf-8"))
        return facts["host"] == socket.gethostname() and not psutil.pid_exists(int(facts["pid"]))
    except (OSError, ValueError, KeyError):
        return False
