"""Commands whose lines are worked on in shards, by a cluster: `--on ray`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...training.console.input_error import InputError
from ...training.console.progress import ProgressBar, say
from ...training.path_lock import hold_lock
from .written_lines import NotesOfLines

if TYPE_CHECKING:
    from ...bulk.shard_work import Do, LineWork, Notes
    from ...bulk.shards import Shard, ShardFolder

Cluster = Literal["ray"]

SHARD_LINES = 5000
"""Of each shard: minutes of work, so that little is lost with a machine, and a billion lines are 200,000 files."""


def whole_path(name: str) -> str:
    """The path of a file or a folder from the root; what is on the Hub stays as it is."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def work_in_shards(
    work: "LineWork",
    request: Mapping[str, Any],
    *,
    workers: int,
    shard_lines: int,
    overwrite: bool,
    described: str,
    do: "Do | None" = None,
) -> None:
    """Does all shards that are not done, and writes the file when the last is.

    Args:
        request: what decides about the lines.
        workers: as `do_on_ray` takes it.
        shard_lines: lines of a shard.
        overwrite: whether an older file, or what is begun of one, may be lost.
        described: what the bar says.
        do: does shards, by default on a Ray cluster.

    Raises:
        InputError: if something cannot be read, written or done, or another process does it; what is done stays.
    """
    from ...bulk.on_ray import do_on_ray
    from ...bulk.shards import ShardFolder, cut_into_shards
    from ...translation.line_output import refuse_output

    if "-" in (work.files[0], work.output):
        raise InputError("--on ray reads and writes files that all machines see: give --input and --output")
    work = replace(work, files=tuple(map(whole_path, work.files)), output=str(Path(work.output).absolute()))
    refuse_output(Path(work.output), overwrite=overwrite)  # before the lock, which would make a folder for itself
    with hold_lock(Path(work.output), otherwise="give another --output"):
        shards = cut_into_shards([Path(name) for name in work.files], shard_lines)
        folder = ShardFolder(Path(work.output))
        folder.begin({**request, "shard_lines": shard_lines}, overwrite=overwrite)
        _do_missing(folder, shards, lambda left: (do or do_on_ray)(work, left, workers), described)
        folder.join(shards)


def _do_missing(
    folder: "ShardFolder",
    shards: "Sequence[Shard]",
    do: "Callable[[Sequence[Shard]], Iterable[tuple[Shard, int, Notes]]]",
    described: str,
) -> None:
    """Does the shards that are not done, and says what was odd in them."""
    left = [shard for shard in shards if not folder.is_done(shard)]
    if len(left) < len(shards):
        say(f"going on behind {len(shards) - len(left):,} of {len(shards):,} shards, which are done")
    if not left:
        return
    note, odd = NotesOfLines(), 0
    total = sum(shard.lines for shard in shards)
    done = total - sum(shard.lines for shard in left)
    try:
        with ProgressBar(total=total, initial=done, desc=described, unit=" lines") as bar:
            for shard, count, notes in do(left):
                odd += count
                for number, what in notes:
                    note(number, what)
                bar.update(shard.lines)
    except BaseException:
        finished = sum(folder.is_done(shard) for shard in shards)
        say(f"{finished:,} of {len(shards):,} shards are in {folder.folder}; the same command goes on with the others")
        raise
    if odd:
        say(f"{odd:,} lines were odd")
