import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from paperformer.training.console.input_error import InputError
from paperformer.translation.line_output import OutputFile, StandardOutput

REQUEST = {"model": "m", "num_beams": 5, "files": [["a", 1, 2]]}


def interrupted(path: Path, *lines: str, **changes: Any) -> OutputFile:
    output = OutputFile(path, REQUEST | changes)
    output.write(lines)
    output.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    return output


def test_the_file_is_there_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: on_disk.append(os.fstat(number).st_size) or sync(number))
    with OutputFile(tmp_path / "out", REQUEST) as output:
        output.write(["é", ""])
        assert on_disk == [4]  # where no loss of power loses it
        assert (tmp_path / "out.part").read_text("utf-8") == "é\n\n"  # at once: a kill loses none
        assert not (tmp_path / "out").exists()
        output.write(["b"])
    assert (tmp_path / "out").read_text("utf-8") == "é\n\nb\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_interrupted_one_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interrupted(tmp_path / "out", "a", "b")
    assert "2 lines are in" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt), OutputFile(tmp_path / "anew", REQUEST, overwrite=True):
        raise KeyboardInterrupt
    assert "the same command" not in capsys.readouterr().err  # which would begin anew
    with (tmp_path / "out.part").open("a") as file:
        file.write("half a li")
    output = OutputFile(tmp_path / "out", REQUEST)
    assert output.done == 2
    with output:
        output.write(["c"])
    assert (tmp_path / "out").read_text() == "a\nb\nc\n"


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"num_beams": 1}, "num_beams"), ({"model": "n", "files": []}, "files, model"), ({"prefix": "x"}, "prefix")],
)
def test_what_was_begun_otherwise_is_not_gone_on_with(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    interrupted(tmp_path / "out", "a")
    with pytest.raises(InputError, match=f"out.part was begun with another {named}; give that again, or --overwrite"):
        OutputFile(tmp_path / "out", REQUEST | changes)
    assert (tmp_path / "out.part").read_text() == "a\n"
    with OutputFile(tmp_path / "out", REQUEST | changes, overwrite=True) as output:
        assert output.done == 0
    assert (tmp_path / "out").read_text() == ""


@pytest.mark.parametrize("record", [None, "{", json.dumps([1])])
def test_a_part_without_a_readable_record_is_not_gone_on_with(tmp_path: Path, record: str | None) -> None:
    interrupted(tmp_path / "out", "a")
    (tmp_path / "out.part.json").unlink()
    if record is not None:
        (tmp_path / "out.part.json").write_text(record)
    with pytest.raises(InputError, match="was begun with another command"):
        OutputFile(tmp_path / "out", REQUEST)


def test_no_file_is_lost_and_no_folder_made(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(InputError, match="is there already; give another --output, or --overwrite true"):
        OutputFile(tmp_path / "there", REQUEST)
    with OutputFile(tmp_path / "there", REQUEST, overwrite=True) as output:
        assert (tmp_path / "there").read_text() == "mine"  # until the new one is complete
        output.write(["new"])
    assert (tmp_path / "there").read_text() == "new\n"
    with pytest.raises(InputError, match="is a folder; --output must be a file"):
        OutputFile(tmp_path, REQUEST)
    with pytest.raises(InputError, match=r"there is no folder .*nowhere for --output"):
        OutputFile(tmp_path / "nowhere" / "out", REQUEST)


def test_a_full_disk_is_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    output = OutputFile(tmp_path / "out", REQUEST)
    file = output._file

    class Full:
        def write(self, content: bytes) -> None:
            file.write(content[:3])
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            file.close()

    output.write(["first"])
    output._file = Full()  # type: ignore[assignment]
    with pytest.raises(InputError, match=r"out.part cannot be written: No space left"):
        output.write(["second"])
    output.__exit__(InputError, InputError(""), None)
    again = OutputFile(tmp_path / "out", REQUEST)
    assert again.done == 1
    again._file.close()
    assert (tmp_path / "out.part").read_text() == "first\n"


def test_standard_output_is_handed_on_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    with StandardOutput() as output:
        output.write(["a", "b"])
        assert capfd.readouterr().out == "a\nb\n"


def test_two_commands_do_not_write_one_file(tmp_path: Path) -> None:
    with OutputFile(tmp_path / "out", REQUEST) as output:
        output.write(["a"])
        for overwrite in (False, True):
            with pytest.raises(
                InputError, match=r"out is being written by process \d+ on .*, or give another --output"
            ):
                OutputFile(tmp_path / "out", REQUEST, overwrite=overwrite)
        OutputFile(tmp_path / "other", REQUEST).__exit__(None, None, None)
        output.write(["b"])
    assert (tmp_path / "out").read_text() == "a\nb\n"
    (tmp_path / "out").unlink()
    interrupted(tmp_path / "out", "a")
    for _ in range(2):  # one that is refused holds nothing
        with pytest.raises(InputError, match="begun with another"):
            OutputFile(tmp_path / "out", REQUEST | {"num_beams": 1})
