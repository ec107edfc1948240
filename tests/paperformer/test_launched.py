"""A command that `accelerate launch` or torchrun starts in several processes is done once, by several processes."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from paperformer import cli
from paperformer.api import model_processes
from paperformer.cli import main

LAUNCHED = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
LINES = ["A dog runs on the beach.", "", "Two men talk.", "A dog.", "Two.", "Men run.", "The beach runs."]


def launch(monkeypatch: pytest.MonkeyPatch, rank: int, **changes: str) -> None:
    for name, value in {**LAUNCHED, "RANK": str(rank), "LOCAL_RANK": str(rank), **changes}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.proof
def test_two_launched_processes_write_a_pipe_s_translations_once(seq2seq: Any, tmp_path: Path) -> None:
    """With the launcher itself: it hands on standard input, which one of them may read."""
    text = "".join(f"{line}\n" for line in LINES)
    command = ["translate", str(seq2seq.folder), "--num_beams", "1"]
    launcher = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]
    launched = subprocess.run(
        [sys.executable, "-m", *launcher, "-m", "paperformer", *command],
        input=text,
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    (tmp_path / "in.txt").write_text(text)
    main([*command, "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "alone.txt")])
    assert launched.stdout == (tmp_path / "alone.txt").read_text()
    assert launched.stdout.count("\n") == len(LINES)


@pytest.mark.proof
def test_a_launched_process_that_is_killed_loses_no_line(
    seq2seq: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The launcher says that it was killed, and the command goes on behind what is there."""
    (tmp_path / "in.txt").write_text("".join(f"{line} {number}\n" for number in range(200) for line in LINES))
    command = ["translate", str(seq2seq.folder), "--num_beams", "1", "--input", str(tmp_path / "in.txt")]
    launcher = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]
    words = [sys.executable, "-m", *launcher, "-m", "paperformer", *command, "--output", str(tmp_path / "out.txt")]
    options: dict[str, Any] = {"env": os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}, "text": True}
    part = tmp_path / "out.txt.part"
    with subprocess.Popen(words, stderr=subprocess.PIPE, **options) as launched:
        while not (part.is_file() and part.stat().st_size):
            assert launched.poll() is None
            time.sleep(0.05)
        (first,) = psutil.Process(launched.pid).children()  # the other has left
        workers = first.children()
        first.kill()
        assert "exitcode  : -9" in launched.communicate(timeout=200)[1]
    assert launched.returncode == 1
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    begun = part.read_text()
    assert 0 < begun.count("\n") < 200 * len(LINES)
    assert not (tmp_path / "out.txt").exists()
    for name in ("out.txt", "alone.txt"):  # the launched command goes on in the same way, and takes a minute more
        main([*command, "--output", str(tmp_path / name)])
    assert f"going on behind the {begun.count(chr(10)):,} lines of " in capsys.readouterr().err
    assert (tmp_path / "out.txt").read_text() == (tmp_path / "alone.txt").read_text()
    assert (tmp_path / "out.txt").read_text().startswith(begun[: begun.rindex("\n") + 1])


@pytest.mark.parametrize("words", [["translate", "m"], ["evaluate", "m", "t"], ["likelihood", "m", "--processes=3"]])
def test_the_first_process_starts_as_many_as_were_launched(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(cli, "_call", lambda command, function, arguments: calls.append((command, *arguments)))
    launch(monkeypatch, 0)
    main(words)
    given = [] if "--processes=3" in words else ["--processes", "2"]
    assert calls == [(f"paperformer {words[0]}", *words[1:], *given)]
    # Else a library would wait for the other, which has ended.
    assert not [name for name in (*LAUNCHED, "RANK", "LOCAL_RANK") if name in os.environ]


def test_the_others_leave_without_a_word_and_read_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launch(monkeypatch, 1)
    unread = io.StringIO("A line.\n")
    monkeypatch.setattr("sys.stdin", unread)
    with pytest.raises(SystemExit) as left:
        main(["translate", "no model"])
    assert left.value.code == 0
    assert capsys.readouterr() == ("", "")
    assert unread.tell() == 0


def test_on_several_machines_it_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    launch(monkeypatch, 0, WORLD_SIZE="4")
    with pytest.raises(SystemExit) as refused:
        main(["translate", "m"])
    assert refused.value.code == 2
    assert "a launcher has started 4 processes" in capsys.readouterr().err


class DyingPool:
    """Its processes do the first share, and the system kills them at the next."""

    def __init__(self, count: int, context: object, begin: Callable[..., None], arguments: tuple[Any, ...]):
        begin(*arguments)
        self.shares = 0

    def __enter__(self) -> "DyingPool":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.shares += 1
        if self.shares > 64:  # a window of 64 lines has at most so many
            future.set_exception(BrokenProcessPool("killed"))
        else:
            future.set_result(call(*arguments))
        return future


def test_what_a_killed_process_leaves_is_gone_on_with(
    seq2seq: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Any
) -> None:
    (tmp_path / "in.txt").write_text("A dog.\nTwo men.\n" * 300)
    command = ["likelihood", str(seq2seq.folder), "--input", str(tmp_path / "in.txt")]
    command += ["--translations", str(tmp_path / "in.txt"), "--output"]
    monkeypatch.setattr(model_processes, "ProcessPoolExecutor", DyingPool)
    monkeypatch.setattr(model_processes, "SHARES_OF_A_PROCESS", 16)
    monkeypatch.setenv("RANK", "0")
    threads = torch.get_num_threads()
    message = refused(*command, tmp_path / "out.tsv", "--processes", "2")
    assert message.startswith("one of 2 processes that score has ended before its time")
    torch.set_num_threads(threads)
    begun = (tmp_path / "out.tsv.part").read_text()
    assert 0 < begun.count("\n") < 600
    main([*command, str(tmp_path / "out.tsv")])  # with another number of them
    main([*command, str(tmp_path / "alone.tsv")])
    both = [(tmp_path / name).read_text() for name in ("out.tsv", "alone.tsv")]
    found, alone = (np.array([line.split("\t") for line in text.splitlines()], dtype=float) for text in both)
    assert found.shape == (600, 3)
    assert np.allclose(found, alone, atol=1e-4)
    assert both[0].startswith(begun)
