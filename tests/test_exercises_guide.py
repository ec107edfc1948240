"""What the guide to the exercises names is there: commands, options, exercises."""

import contextlib
import re
import shlex
from pathlib import Path

import pytest

from paperformer.cli import main
from paperformer.commands.exercises import EXERCISES
from paperformer.training.recipe.command_line import CommandLine

GUIDE = (Path(__file__).parents[1] / "docs" / "exercises.md").read_text("utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command: str) -> None:
    program, group, name, *arguments = shlex.split(command)
    assert (program, group) == ("paperformer", "exercise")
    command_line = CommandLine(prog=name)
    command_line.add_function(EXERCISES[name])
    command_line.parse(command_line.join_values(arguments))


def test_every_exercise_has_its_section_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.findall(r"^## (.*)", GUIDE, re.MULTILINE) == list(EXERCISES)
    assert re.findall(r"^\| \[(\w+)\]\(#\1\)", GUIDE, re.MULTILINE) == list(EXERCISES)
    with contextlib.suppress(SystemExit):
        main(["exercise", "--help"])
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in EXERCISES)
