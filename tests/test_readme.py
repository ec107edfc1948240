"""What the README says is there, and what it shows runs."""

import contextlib
import re
import shlex
from pathlib import Path

import pytest

from paperformer.cli import main

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[list[str]]:
    lines = "".join(blocks("bash")).replace("\\\n", " ").splitlines()
    lines += re.findall(r"`(paperformer [^`]* --[^`]*)`", README)
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("paperformer ")]


def test_links_lead_to_files():
    links = [link for link in re.findall(r"\]\(([^)]*)\)", README) if "://" not in link]
    assert len(links) > 40
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_python_code_runs():
    parts = [block for block in blocks("python") if "runs/quickstart" not in block]  # that needs trained models
    assert len(parts) == 2
    exec("\n".join(parts), {})


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_commands_have_the_options_that_are_shown(command, capsys):
    name = command[:2] if command[0] in ("plot", "prepare", "tokenizer", "train") else command[:1]
    with contextlib.suppress(SystemExit):
        main([*name, "--help"])
    options = {word.partition("=")[0] for word in command if word.startswith("--")} - {"--help"}
    shown = capsys.readouterr().out
    assert [option for option in options if option not in shown] == []
