from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paperformer.training.corpora import cache_folder
from paperformer.training.options.data import ParallelData
from paperformer.training.prepare import main, prepare
from paperformer.training.recipe import Recipe
from paperformer.training.train_lm import lm_job
from paperformer.training.train_seq2seq import seq2seq_job


def command_line(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def test_everything_is_cached_and_reported(seq2seq_options: dict[str, Any], tmp_path: Path) -> None:
    job = seq2seq_job(command_line(seq2seq_options))
    lines = list(prepare(job))
    assert lines[0] == "data.train: kept 48 of 48 rows"
    assert "    A dog sleeps. | Ein Hund schläft." in lines
    assert "tokenizer: 300 entries" in lines
    assert any(line.startswith("train: 48 examples, ") for line in lines)
    assert lines[-1].startswith("an epoch: ")
    assert not (tmp_path / "runs" / "tiny").exists()
    kinds = sorted(path.name.partition("-")[0] for path in cache_folder(job.recipe).iterdir() if path.is_dir())
    assert kinds == ["text", "text", "text", "tokenizer", "tokens"]
    before = {path: path.stat().st_mtime_ns for path in cache_folder(job.recipe).rglob("*")}
    assert list(prepare(job)) == lines
    assert {path: path.stat().st_mtime_ns for path in cache_folder(job.recipe).rglob("*")} == before


def test_bad_lines_and_what_is_left_out_are_reported(seq2seq_options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("A dog.\tEin Hund.\nno tab\nA dog.\tEin Hund.\n")
    changes = {"data.train": tmp_path / "bad.tsv", "data.on_bad_line": "skip", "cleaning.duplicates": "exact"}
    (tmp_path / "held-out.tsv").write_text("A cat.\tEine Katze.\n")
    changes |= {"data.validation": tmp_path / "held-out.tsv", "data.test": tmp_path / "held-out.tsv"}
    report = "\n".join(prepare(seq2seq_job(command_line(seq2seq_options | changes))))
    assert "data.train: kept 1 of 2 rows" in report
    assert "1  50.000%  duplicate" in report
    assert f", first {tmp_path / 'bad.tsv'}, line 2" in report


def test_running_text_and_streams(lm_options: dict[str, Any]) -> None:
    lines = list(prepare(lm_job(command_line(lm_options))))
    assert lines[-1].endswith("batches of 4 x 16 tokens")
    streamed = list(prepare(lm_job(command_line(lm_options | {"data.streaming": "true"}))))
    assert streamed[0] == "data.train: read anew each epoch (data.streaming)"
    assert streamed[-1].endswith("made while training")


def test_bad_input_ends_in_one_line(seq2seq_options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(seq2seq_job, command_line(seq2seq_options | {"data.train": "./nowhere"}))
    assert stopped.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("error: there is no ")


def test_a_run_begins_where_preparation_ended(
    seq2seq_recipe: Callable[..., Recipe[ParallelData]],
    seq2seq_options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from paperformer.training import run_tokenizers
    from paperformer.training.data import cache
    from paperformer.training.train_seq2seq import train_seq2seq

    list(prepare(seq2seq_job(command_line(seq2seq_options))))
    monkeypatch.setattr(run_tokenizers, "train_tokenizer", None)
    monkeypatch.setattr(cache, "replace_folder", None)
    assert train_seq2seq(command_line(seq2seq_options), "command").is_dir()
