"""Training runs as the page shows them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from paperformer.demo.runs import list_names, show_runs, stamp


def write_run(folder: Path, losses: list[float], *, sample: str = "ein Hund", **optimization: Any) -> None:
    folder.mkdir(parents=True)
    recipe = {
        "objective": "seq2seq",
        "name": folder.name,
        "data": {"dataset": "text"},
        "optimization": {"max_steps": 3000} | optimization,
        "evaluation": {"select_by": "loss"},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), "utf-8")
    for number, loss in enumerate(losses, start=1):
        add_step(folder, 1000 * number, loss, sample)


def add_step(folder: Path, step: int, loss: float, sample: str = "ein Hund") -> None:
    records = [
        {"step": step, "loss": loss + 1, "seconds": 9.0},
        {"step": step, "validation": {"loss": loss, "bleu": 9.5}},
    ]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("".join(f"{json.dumps(record)}\n" for record in records))
    with (folder / "samples.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "samples": [["a dog", "ein Hund", f"{sample} {step}"]]}) + "\n")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_run(tmp_path / "one", [4.0, 3.0])
    write_run(tmp_path / "sweep" / "two", [3.5, 2.5], learning_rate=0.5)
    return tmp_path


def test_runs_of_a_folder_and_of_the_folders_in_it(runs: Path) -> None:
    assert sorted(list_names(runs)) == ["one", "sweep/two"]
    assert list_names(runs / "nowhere") == []


def test_a_run_has_curves_and_samples(runs: Path) -> None:
    html = show_runs(runs, ["one"])
    assert "2,000 of 3,000" in html
    assert "training 5 at step 1,000 and 4 at step 2,000" in html
    assert "validation 4 at step 1,000 and 3 at step 2,000" in html
    assert "Validation bleu" in html
    assert "ein Hund 1000" in html
    assert "ein Hund 2000" in html


def test_runs_are_compared(runs: Path) -> None:
    html = show_runs(runs, ["one", "sweep/two"])
    assert "sweep/two, validation 3.5 at step 1,000" in html
    assert '<td class="pf-number pf-best">2.5000</td>' in html
    assert "optimization.learning_rate" in html


def test_new_lines_are_noticed(runs: Path) -> None:
    before = stamp(runs, ["one"])
    assert stamp(runs, ["one"]) == before
    add_step(runs / "one", 3000, 2.0)
    assert stamp(runs, ["one"]) != before
    assert "ein Hund 3000" in show_runs(runs, ["one"])


def test_a_run_that_is_damaged_is_named(runs: Path) -> None:
    (runs / "one" / "metrics.jsonl").write_text("no JSON\n{}\n", "utf-8")
    html = show_runs(runs, ["one", "sweep/two"])
    assert "one: damaged metrics.jsonl" in html
    assert "ein Hund 2000" in html


def test_nothing_chosen_is_said() -> None:
    assert "Choose a run" in show_runs(Path(), [])


def test_texts_of_runs_are_escaped(tmp_path: Path) -> None:
    write_run(tmp_path / "<script>", [2.0, 1.0], sample="<script>alert(1)</script>")
    assert "<script" not in show_runs(tmp_path, ["<script>"])
