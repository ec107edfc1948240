"""Folders that are computed once, and known by what they were computed from.

A folder's name is a hash of its ingredients: a changed file, setting or tokenizer gives another name, so nothing stale
is ever found. It is written under a temporary name and renamed when it is complete, under a lock: of two processes that
want the same folder, one makes it and the other waits. Any of them may be deleted between runs; it is made again.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import xxhash
from filelock import FileLock, Timeout

from ..atomic_files import replace_folder, writing
from ..console.progress import ProgressBar, say
from .text.files import readable

HASH_BLOCK_BYTES = 1 << 22


def cached_folder(cache: Path, kind: str, ingredients: Any, write: Callable[[Path], Any]) -> Path:
    """The folder of that kind that was made from these ingredients; it is made now if it is missing.

    Args:
        cache: where all such folders are.
        kind: what it holds, in a word; its name begins with it.
        ingredients: everything that its content depends on, as `json` takes it.
        write: fills an empty folder.

    Raises:
        InputError: if it cannot be written. Whatever is raised, nothing is left that could be taken for complete.
    """
    key = xxhash.xxh3_128_hexdigest(json.dumps(ingredients, sort_keys=True).encode())
    folder = cache / f"{kind}-{key}"
    if folder.is_dir():  # complete, since it has been renamed; no lock is needed
        return folder
    with writing(cache):
        cache.mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache / f"{folder.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say(f"waiting for another process that is making {folder}")
            lock.acquire()
    try:
        if not folder.is_dir():
            replace_folder(folder, write)
    finally:
        lock.release()
    return folder


def content_hashes(files: Sequence[Path]) -> list[str]:
    """A hash of each file's content (XXH3, 128 bits): gigabytes a second, and a touched file keeps its hash.

    Raises:
        InputError: if a file cannot be read.
    """
    hashes = []
    with ProgressBar(total=sum(file.stat().st_size for file in files), desc="check files", unit="B") as bar:
        for path in files:
            content = xxhash.xxh3_128()
            with readable(path), path.open("rb", buffering=0) as file:
                while block := file.read(HASH_BLOCK_BYTES):
                    content.update(block)
                    bar.update(len(block))
            hashes.append(content.hexdigest())
    return hashes
