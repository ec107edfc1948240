"""The commands and the Python of the guide to publishing run as they are written, on a Hub of their own."""

import inspect
import re
import shlex
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from paperformer.cli import COMMANDS, main
from paperformer.training.publishing import upload

from .conftest import Saved
from .hub_server import Hub

GUIDE = (Path(__file__).parents[2] / "docs" / "publishing.md").read_text("utf-8")


def test_all_of_it_runs_from_top_to_bottom(
    seq2seq: Saved, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(upload, "check_loads_alone", lambda folders, models: None)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(seq2seq.folder, "runs/en-is/model")
    Path("runs/en-is/recipe.yaml").write_text("seed: 1\n")
    Path("news.en").write_text("A dog runs.\n")
    printed = []
    for language, block in re.findall(r"```(bash|python)\n(.*?)```", GUIDE, re.DOTALL):
        if language == "python":
            exec(block, {})
        else:
            main(shlex.split(block)[1:])
        printed.append(capsys.readouterr().out.splitlines())
    repository = hub.repositories["me/en-is"]
    address = f"{hub.endpoint}/me/en-is {repository.head.oid}"
    assert printed[:2] == [[address], [address]]
    assert repository.tags == {"v1.0": repository.head.oid}
    assert len(printed[2]) == 1
    assert Path("news.is").read_text("utf-8").count("\n") == 1


def test_its_table_has_the_options_of_the_command() -> None:
    command = COMMANDS["push"]
    assert callable(command)
    options = set(inspect.signature(command).parameters) - {"run", "repo_id"}
    assert set(re.findall(r"^\| `--(\w+)", GUIDE, re.MULTILINE)) == options - {"commit_message"}
