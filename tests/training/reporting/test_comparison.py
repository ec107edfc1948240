import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from paperformer.training.recipe.recipe import Recipe
from paperformer.training.reporting.comparison import (
    changed_fields,
    differing_fields,
    list_runs,
    read_run,
    score_rows,
    steps_by_score,
)

Recipes = Callable[..., Recipe[Any]]
MakeRun = Callable[..., Path]


def line(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "loss": 3.0, "tokens_per_second": 100.0 * step, "seconds": 2.0 * step} | more


def validated(step: int, loss: float | None) -> dict[str, Any]:
    return {"step": step, "validation": {"loss": loss, "bleu": 10 * (loss or 0)}, "seconds": 2.0 * step}


START = {"step": 0, "hardware": "a processor", "energy": "measured by RAPL (processor packages only)"}
TRAINED = [START, line(2), validated(2, 4.0), line(4), validated(4, 2.0), line(6), validated(6, 3.0)]
CHOSEN = {"step": 6, "chosen": "mean of steps 4, 6", "select_by": "loss", "candidates": {"step 4": 2.0}}
CHOSEN["candidates"] |= {"mean of steps 4, 6": 1.5}


def scores(bleu: float, loss: float, tokens: int) -> dict[str, Any]:
    return {
        "task": "translation",
        "split": "test",
        "sentences": 9,
        "bleu": {"score": bleu, "signature": "nrefs:1"},
        "loss": {"nats_per_token": loss, "tokens": tokens},
    }


@pytest.fixture
def make_run(seq2seq_recipe: Recipes, tmp_path: Path) -> MakeRun:
    """Writes what a run of this name leaves behind."""

    def make(
        name: str = "tiny",
        records: list[dict[str, Any]] | None = None,
        test: dict[str, Any] | None = None,
        recipes: Recipes = seq2seq_recipe,
        **changes: Any,
    ) -> Path:
        folder = tmp_path / "runs" / name
        (folder / "evaluation").mkdir(parents=True)
        (folder / "recipe.yaml").write_text(recipes(name=name, **changes).yaml, "utf-8")
        if records is not None:
            lines = "".join(json.dumps(record) + "\n" for record in records)
            (folder / "metrics.jsonl").write_text(lines + '{"half a li', "utf-8")
        if test is not None:
            (folder / "model").mkdir()
            save_file({"a": torch.zeros(3, 4), "b": torch.zeros(5)}, folder / "model" / "model.safetensors")
            evaluation = {"validation": test | {"split": "validation"}, "test": test}
            (folder / "evaluation" / "evaluation.json").write_text(json.dumps(evaluation), "utf-8")
        return folder

    return make


def test_a_finished_run(make_run: MakeRun) -> None:
    run = read_run(make_run("größe 文", [*TRAINED, CHOSEN], scores(12.0, 2.5, 50)))
    assert (run.name, run.task, run.state, run.problem) == ("größe 文", "translation", "finished, 6", None)
    assert (run.best, run.chosen, run.best_step) == (1.5, "mean of steps 4, 6", 4)
    assert [(result.metric.name, result.value) for result in run.test] == [("bleu", 12.0), ("loss", 2.5)]
    assert (run.tokens_per_second, run.seconds, run.parameters) == (400.0, 12.0, 17)
    assert run.hardware == ["a processor"]


def test_how_far_runs_are(make_run: MakeRun) -> None:
    assert read_run(make_run("a")).state == "prepared"
    assert read_run(make_run("b", [START])).state == "prepared"
    unfinished = read_run(make_run("c", TRAINED, optimization__max_steps=1234))
    assert (unfinished.state, unfinished.best, unfinished.best_step, unfinished.test) == ("6 of 1,234", 2.0, 4, [])
    # Its weights are chosen, and its model is not written yet.
    assert read_run(make_run("d", [*TRAINED, CHOSEN])).state == "6 of 6"
    # It was finished, and goes on: scores and weights are those of before.
    gone_on = [*TRAINED, CHOSEN, START | {"step": 6}, line(8)]
    again = read_run(make_run("e", gone_on, scores(12.0, 2.5, 50), optimization__max_steps=9))
    assert (again.state, again.chosen, again.test, again.best) == ("8 of 9", None, [], 2.0)
    # Stopped early, by its patience.
    assert (
        read_run(make_run("f", [*TRAINED, CHOSEN], scores(1, 1, 1), optimization__max_steps=99)).state == "finished, 6"
    )


def test_a_language_model(make_run: MakeRun, lm_recipe: Recipes) -> None:
    assert read_run(make_run(recipes=lm_recipe)).task == "text-generation"


def test_utilisation_and_energy_and_events(make_run: MakeRun) -> None:
    # 60 FLOPs of 100 possible, then 30 of 300; a line of a processor whose peak is not known
    shares = [line(2, flops=60, utilisation=0.6, joules=5.0), line(4, flops=30, utilisation=0.1, joules=7.0)]
    spike = {"step": 4, "at_step": 5, "event": "spike", "action": "warn", "reason": "far above"}
    run = read_run(make_run(records=[START, *shares, spike, line(6, flops=9, utilisation=None)]))
    assert run.utilisation == pytest.approx(90 / 400)
    assert (run.joules, run.energy_source) == (7.0, START["energy"])
    assert run.events == [spike]
    assert read_run(make_run("old", [line(2)])).utilisation is None


def test_steps_by_score(make_run: MakeRun) -> None:
    records = [validated(1, 2.0), validated(2, math.nan), validated(3, 1.0), validated(4, 2.0)]
    assert steps_by_score(read_run(make_run("a", records))) == [3, 1, 4]
    run = read_run(make_run("b", records, evaluation__select_by="bleu"))
    assert (steps_by_score(run), run.best) == ([1, 4, 3], 20.0)
    nothing = {"step": 4, "chosen": "step 1", "candidates": {"step 1": None}}  # as a run writes what is not finite
    null = read_run(make_run("d", [line(1) | {"loss": None}, validated(1, None), validated(2, 2.0), nothing]))
    assert null.problem is None
    assert math.isnan(null.validation[1]["loss"])
    assert null.best_step == 2
    only_nan = read_run(make_run("c", [validated(1, math.nan)]))
    assert (only_nan.best_step, only_nan.best) == (None, None)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("recipe.yaml", b"- a list"),
        ("recipe.yaml", b"{"),
        ("recipe.yaml", b"\xff"),
        ("recipe.yaml", b"name: x\n"),
        ("recipe.yaml", b""),
        ("metrics.jsonl", b"[1]\n"),
        ("metrics.jsonl", b"no JSON\n"),
        ("metrics.jsonl", b'{"loss": 1}\n'),
        ("metrics.jsonl", b'{"step": 1, "validation": {"bleu": 3}}\n'),
        ("metrics.jsonl", b'{"step": 1, "validation": 3}\n'),
        ("evaluation.json", b"{"),
        ("evaluation.json", b'{"test": {"bleu": 3}}'),
    ],
)
def test_damaged_files_are_named(make_run: MakeRun, file: str, content: bytes) -> None:
    folder = make_run(records=[*TRAINED, CHOSEN], test=scores(12.0, 2.5, 50))
    next(folder.rglob(file)).write_bytes(content)
    run = read_run(folder)
    assert (run.problem, run.state, run.task, run.validation) == (f"damaged {file}", f"damaged {file}", "", {})


def test_weights_that_cannot_be_read_are_only_not_counted(make_run: MakeRun) -> None:
    folder = make_run(records=[*TRAINED, CHOSEN], test=scores(12.0, 2.5, 50))
    (folder / "model" / "model.safetensors").write_bytes(b"half")
    assert read_run(folder).parameters is None
    (folder / "checkpoints" / "step-4").mkdir(parents=True)
    save_file({"a": torch.zeros(7)}, folder / "checkpoints" / "step-4" / "model.safetensors")
    assert (read_run(folder).parameters, read_run(folder).problem) == (7, None)


def test_all_runs_of_a_folder_newest_first(make_run: MakeRun) -> None:
    for name, time in (("old", 1000), ("new", 3000), ("middle", 2000)):
        os.utime(make_run(name, TRAINED) / "metrics.jsonl", (time, time))
    runs = make_run("x").parent
    (runs / "x" / "recipe.yaml").rename(runs / "a file")
    os.utime(runs / "x", (500, 500))
    (runs / "group").mkdir()
    (runs / "x").rename(runs / "group" / "inner")
    (runs / "group" / "inner" / "recipe.yaml").write_text("")
    os.utime(runs / "group", (600, 600))
    (runs / ".cache").mkdir()
    (runs / "photos").mkdir()
    os.utime(runs / "photos", (400, 400))
    found = [(run.name, run.problem) for run in list_runs(runs)]
    assert found == [("new", None), ("middle", None), ("old", None), ("group", "holds runs"), ("photos", "not a run")]


def test_what_differs(make_run: MakeRun) -> None:
    runs = [
        read_run(make_run("a", data__workers=3)),
        read_run(make_run("b", optimization__learning_rate=0.5)),
        read_run(make_run("c", model__dropout=0.3)),
    ]
    assert differing_fields(runs) == ["model.dropout", "optimization.learning_rate"]
    assert differing_fields(runs[:1]) == []


def test_what_is_not_at_its_default(make_run: MakeRun, lm_recipe: Recipes) -> None:
    changed = changed_fields(
        read_run(make_run("a", optimization__schedule="cosine", optimization__accumulation_steps=1))
    )
    assert changed["optimization.schedule"] == "cosine"
    assert changed["model.hidden_size"] == 16
    assert not {"name", "output_dir", "optimization.accumulation_steps", "model.norm_eps"} & changed.keys()
    assert changed_fields(read_run(make_run("b", recipes=lm_recipe)))["data.context_length"] > 0


def rows_of(*folders: Path) -> dict[str, tuple[bool, float | None]]:
    rows = score_rows([read_run(folder) for folder in folders])
    return {f"{row.split} {row.metric.name}": (row.is_comparable, row.best) for row in rows}


def test_the_best_of_scores_that_compare(make_run: MakeRun) -> None:
    done = [*TRAINED, CHOSEN]
    a = make_run("a", done, scores(12.0, 2.5, 50))
    b = make_run("b", [*TRAINED[:-2], validated(6, 1.0)], model__dropout=0.3)
    c = make_run("c", done, scores(14.0, 2.0, 50), optimization__learning_rate=0.5)
    assert rows_of(a, b, c) == {
        "validation loss": (True, 1.0),
        "test bleu": (True, 14.0),
        "test loss": (True, 2.0),
    }
    assert rows_of(a, b)["test bleu"] == (True, None)  # one has none


def test_scores_that_do_not_compare_have_no_best(make_run: MakeRun) -> None:
    done = [*TRAINED, CHOSEN]
    a = make_run("a", done, scores(12.0, 2.5, 50))
    other_tokens = make_run("b", done, scores(14.0, 2.0, 60), tokenizer__vocab_size=320)
    assert rows_of(a, other_tokens) == {
        "validation loss": (False, None),
        "test bleu": (True, 14.0),
        "test loss": (False, None),
    }
    other_text = make_run("c", done, scores(14.0, 2.0, 50), data__test="validation")
    assert rows_of(a, other_text)["test bleu"] == (False, None)
    other_score = make_run("d", done, evaluation__select_by="bleu")
    assert rows_of(a, other_score) == {
        "validation loss": (True, None),
        "validation bleu": (True, None),
        "test bleu": (True, None),
        "test loss": (True, None),
    }


def test_recipes_of_earlier_versions(make_run: MakeRun) -> None:
    folder = make_run(records=TRAINED)
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text("utf-8"))
    del recipe["guard"], recipe["evaluation"]["patience"]
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), "utf-8")
    run = read_run(folder)
    assert (run.problem, run.state) == (None, "6 of 6")
    assert "guard.window" in differing_fields([run, read_run(make_run("new"))])
