"""A Ray cluster of two actors on this machine, one of which is killed."""

import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paperformer.bulk.shard_work import LineWork
from paperformer.commands.text.in_shards import work_in_shards
from paperformer.training.console.input_error import InputError
from paperformer.translation.streaming import as_text

pytest.importorskip("ray", reason="ray is not installed: pip install 'paperformer[ray]'")
pytestmark = pytest.mark.proof


def test_an_actor_that_is_killed_costs_no_line_and_doubles_none(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(1, 61)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", "utf-8")

    def shout(texts: Sequence[str], note: Any, place: Path) -> list[str]:  # local: it travels by value
        time.sleep(0.2)
        (place / f"seen-{os.getpid()}").touch()
        if "line 31" in texts and not (place / "killed").exists():
            (place / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [text.upper() for text in texts]

    work = LineWork(
        lambda: partial(shout, place=tmp_path), as_text, (str(tmp_path / "in.txt"),), str(tmp_path / "out.txt")
    )
    work_in_shards(work, {}, workers=2, shard_lines=5, overwrite=False, described="test")
    assert (tmp_path / "killed").exists()
    assert len(list(tmp_path.glob("seen-*"))) == 3  # two, and one in the place of that which was killed
    assert (tmp_path / "out.txt").read_text("utf-8").splitlines() == [line.upper() for line in lines]

    pairs = LineWork(work.load, as_text, work.files, str(tmp_path / "pairs.txt"), is_of_pairs=True)
    with pytest.raises(InputError, match=r"line [0-9]+ has no tab"):
        work_in_shards(pairs, {}, workers=2, shard_lines=5, overwrite=False, described="test")
