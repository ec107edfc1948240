import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paperformer.training import path_lock
from paperformer.training.console.input_error import InputError
from paperformer.training.path_lock import hold_lock

HOLD = """
import sys, time
from pathlib import Path
from paperformer.training.path_lock import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that writes the run `tiny`."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "runs" / "tiny")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_it_says_who_writes_a_run_and_a_killed_process_does_not_block(
    holder: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    path = tmp_path / "runs" / "tiny"
    said = rf"tiny is being written by process {holder.pid} on {socket.gethostname()} since 20..-..-.. ..:..; wait for"
    for _ in range(2):  # asking takes nothing away
        with pytest.raises(InputError, match=said), hold_lock(path):
            pass
    with hold_lock(path.with_name("other")):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with hold_lock(path):
        assert json.loads((path.parent / ".tiny.holder").read_text())["pid"] == os.getpid()
    assert list(path.parent.iterdir()) == []


def test_orphans_of_a_killed_process_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tiny"
    monkeypatch.setattr(path_lock, "SECONDS_OF_ORPHANS", 0.01)
    with hold_lock(path):
        (tmp_path / ".tiny.holder").write_text(
            json.dumps({"pid": 2**22 + 1, "host": socket.gethostname(), "since": "1"})
        )
        assert path_lock._is_gone(tmp_path / ".tiny.holder")
        with pytest.raises(InputError, match="since 1"), hold_lock(path):
            pass
        (tmp_path / ".tiny.holder").write_text("{")
        with pytest.raises(InputError, match="is being written by another process"), hold_lock(path):
            pass


def test_it_leaves_no_folder_that_it_made(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "a" / "b" / "tiny"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
    with hold_lock(tmp_path / "a" / "tiny"):
        (tmp_path / "a" / "tiny").mkdir()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["tiny"]
