"""Every row of docs/bad_input.md, run: what is refused, and what is done with all the same."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from paperformer import train_tokenizer
from paperformer.cli import main

from .bad_inputs import write_bad_inputs
from .conftest import TEXTS, Saved

PAGE = (Path(__file__).parents[2] / "docs" / "bad_input.md").read_text("utf-8")
ROW = re.compile(r"^\| (?P<input>[^|]+) \| `(?P<command>[^`]+)` \| `(?P<said>[^`]*)` \|$", re.MULTILINE)
REFUSED, DONE = (ROW.findall(part) for part in PAGE.split("## Done all the same"))
COMMANDS = {
    "translate",
    "generate",
    "score",
    "evaluate",
    "convert",
    "train",
    "prepare",
    "tokenizer",
    "average",
    "push",
    "runs",
    "check",
}


@pytest.fixture(scope="module")
def place(seq2seq: Saved, lm: Saved, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("bad")
    larger = train_tokenizer([*TEXTS, "More words than the others have, of several letters."] * 3, 400, append_eos=True)
    write_bad_inputs(folder, seq2seq.folder, lm.folder, larger)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def test_the_page_has_every_command() -> None:
    assert {command.split()[0] for _, command, _ in REFUSED} == COMMANDS
    assert len(REFUSED) > 80
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) == len(REFUSED) + len(DONE)  # the test reads all


@pytest.mark.parametrize(("command", "said"), [row[1:] for row in REFUSED])
def test_bad_input_is_refused_in_one_line(
    command: str, said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = contents(place)
    with pytest.raises(SystemExit) as stopped:
        main(arguments(command))
    output = capsys.readouterr()
    assert (stopped.value.code, output.out) == (2, "")
    *before, line = output.err.splitlines()
    assert line.startswith(f"error: {said}")
    # Who gives no recipe is told first which one it gets.
    assert before == [] or (command.startswith(("train", "prepare")) and before[0].startswith("no recipe was given"))
    assert contents(place) == files  # nothing is lost, and nothing half-written
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize(("command", "said"), [row[1:] for row in DONE])
def test_odd_input_is_done_and_told_of(
    command: str, said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(arguments(command))
    assert said in capsys.readouterr().err
    if "--output out.txt" in command:
        lines = Path(command.split()[3]).read_bytes().count(b"\n")
        assert Path("out.txt").read_bytes().count(b"\n") == lines


def arguments(command: str) -> list[str]:
    """The words of a command, with `""` for an empty one."""
    return ["" if word == '""' else word for word in command.split()]


def contents(folder: Path) -> dict[str, int]:
    """When each file was written; but for those of the cache of texts, which is filled whoever asks."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".cache" not in path.parts)
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}
