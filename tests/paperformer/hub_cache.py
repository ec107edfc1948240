"""Repositories of the Hub as its cache has them, for loading by name without a network."""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path


def cache_repository(cache: Path, repo_id: str, revisions: Mapping[str, Path]) -> None:
    """Puts a repository into a cache, as if it had been downloaded.

    Args:
        cache: what is `cache_dir` to transformers.
        repo_id: USER/NAME.
        revisions: branch -> folder with its files.
    """
    repository = cache / f"models--{repo_id.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    for branch, folder in revisions.items():
        commit = hashlib.sha1(branch.encode(), usedforsecurity=False).hexdigest()
        (repository / "refs" / branch).write_text(commit, "utf-8")
        shutil.copytree(folder, repository / "snapshots" / commit)
