from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paperformer.training.data.splits import cache_folder
from paperformer.training.prepare import main, prepare
from paperformer.training.recipe.data import ParallelData
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.run import run
from paperformer.training.tasks.registry import OBJECTIVES


def command_line(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def prepared(name: str, arguments: list[str]) -> list[str]:
    """What is told of it."""
    return told(name, OBJECTIVES[name].read_recipe(arguments))


def told(name: str, recipe: Recipe[Any]) -> list[str]:
    lines: list[str] = []
    prepare(OBJECTIVES[name], recipe, lines.append)
    return lines


def test_everything_is_cached_and_reported(seq2seq_options: dict[str, Any], tmp_path: Path) -> None:
    recipe = OBJECTIVES["seq2seq"].read_recipe(command_line(seq2seq_options))
    lines = told("seq2seq", recipe)
    assert lines[0] == "data.train: kept 48 of 48 rows"
    assert "    A dog sleeps. | Ein Hund schläft." in lines
    assert "tokenizer: 300 entries" in lines
    assert any(line.startswith("train: 48 examples, ") for line in lines)
    assert lines[-1].startswith("an epoch: ")
    assert not (tmp_path / "runs" / "tiny").exists()
    kinds = sorted(path.name.partition("-")[0] for path in cache_folder(recipe).iterdir() if path.is_dir())
    assert kinds == ["text", "text", "text", "tokenizer", "tokens"]
    before = {path: path.stat().st_mtime_ns for path in cache_folder(recipe).rglob("*")}
    assert told("seq2seq", recipe) == lines
    assert {path: path.stat().st_mtime_ns for path in cache_folder(recipe).rglob("*")} == before


def test_bad_lines_and_what_is_left_out_are_reported(seq2seq_options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("A dog.\tEin Hund.\nno tab\nA dog.\tEin Hund.\n")
    changes = {"data.train": tmp_path / "bad.tsv", "data.on_bad_line": "skip", "cleaning.duplicates": "exact"}
    (tmp_path / "held-out.tsv").write_text("A cat.\tEine Katze.\n")
    changes |= {"data.validation": tmp_path / "held-out.tsv", "data.test": tmp_path / "held-out.tsv"}
    report = "\n".join(prepared("seq2seq", command_line(seq2seq_options | changes)))
    assert "data.train: kept 1 of 2 rows" in report
    assert "1  50.000%  duplicate" in report
    assert f", first {tmp_path / 'bad.tsv'}, line 2" in report


def test_running_text_and_streams(lm_options: dict[str, Any]) -> None:
    lines = prepared("lm", command_line(lm_options))
    assert lines[-1].endswith("batches of 4 x 16 tokens")
    streamed = prepared("lm", command_line(lm_options | {"data.streaming": "true"}))
    assert streamed[0] == "data.train: read anew each epoch (data.streaming)"
    assert streamed[-1].endswith("made while training")


def test_bad_input_ends_in_one_line(seq2seq_options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(OBJECTIVES["seq2seq"], command_line(seq2seq_options | {"data.train": "./nowhere"}))
    assert stopped.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("error: there is no ")


def test_a_run_begins_where_preparation_ended(
    seq2seq_recipe: Callable[..., Recipe[ParallelData]],
    seq2seq_options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from paperformer.training.data import cache
    from paperformer.training.data import tokenizers as run_tokenizers

    objective = OBJECTIVES["seq2seq"]
    recipe = objective.read_recipe(command_line(seq2seq_options))
    told("seq2seq", recipe)
    monkeypatch.setattr(run_tokenizers, "train_tokenizer", None)
    monkeypatch.setattr(cache, "replace_folder", None)
    assert run(objective, recipe, "command").is_dir()
