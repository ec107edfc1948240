import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from paperformer import Run, quickstart
from paperformer.training.engine.stop_request import TrainingStopped
from paperformer.training.recipe.recipe import Recipe


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, lm: Any, seq2seq: Any) -> list[Recipe[Any]]:
    """Puts two finished models where training would; returns the recipes that it was called with."""
    calls: list[Recipe[Any]] = []

    def train(recipe: Recipe[Any]) -> Run:
        calls.append(recipe)
        saved = seq2seq if recipe.run.objective == "seq2seq" else lm
        folder = Path(recipe.run.output_dir) / recipe.run.name
        shutil.copytree(saved.folder, folder / "model")
        (folder / "evaluation").mkdir()
        (folder / "recipe.yaml").write_text(recipe.yaml)
        sample = ["A dog runs on the beach.", "Ein Hund läuft am Strand.", "..."]
        (folder / "evaluation" / "samples.jsonl").write_text(f"{json.dumps(sample)}\n" * 9)
        return Run(folder)

    monkeypatch.setattr(quickstart, "train", train)
    return calls


@pytest.mark.parametrize("fast", [False, True])
def test_the_recipes_and_what_is_said_of_them(
    fast: bool,
    trained: list[Recipe[Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(quickstart, "_use_without_package", lambda lm, translator, samples: (samples, "passage"))
    quickstart.run_quickstart(tmp_path, fast=fast)
    assert [recipe.run.name for recipe in trained] == ["shakespeare-lm", "cldr-en-de"]
    for recipe in trained:
        assert (recipe.optimization.max_steps == 40) == fast
        assert recipe.run.overwrite
        assert recipe.data.dataset.startswith("built-in:")  # no hub is needed
    few = " --optimization.max_steps 40 --evaluation.every_steps 40" if fast else ""
    greedy = " --evaluation.num_beams 1" if fast else ""
    said = capsys.readouterr().out
    for name, script, options in (("shakespeare-lm", "lm", few), ("cldr-en-de", "seq2seq", few + greedy)):
        launched = f"accelerate launch -m paperformer.training.train_{script} --config {name}"
        assert f"\n== {name}: {launched} --output_dir {tmp_path} --overwrite true{options}\n" in said
        assert f"\nmodel: {tmp_path}/{name}/model\n" in said


def test_an_interruption_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(recipe: Recipe[Any]) -> None:
        raise TrainingStopped("stopped after step 2, and its state is saved")

    monkeypatch.setattr(quickstart, "train", stop)
    with pytest.raises(SystemExit) as stopped:
        quickstart.run_quickstart(tmp_path, fast=True)
    assert stopped.value.code == 130
    said = capsys.readouterr().err
    assert said.startswith(
        "stopped after step 2, and its state is saved; go on with: accelerate launch -m paperformer."
    )
    assert "--overwrite" not in said
    assert said.endswith(" --resume\n")


@pytest.mark.proof
def test_both_models_are_loaded_back_and_used(
    trained: list[Recipe[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process of its own that cannot import the package: it takes the code from the models' folders."""
    quickstart.run_quickstart(tmp_path, fast=True)
    shown = capsys.readouterr().out
    assert shown.count("  A dog runs on the beach.  ->  ") == 8
    assert "KING RICHARD:" in shown
    assert f"models: {tmp_path}/shakespeare-lm/model, {tmp_path}/cldr-en-de/model" in shown
    assert (
        f"""  translate = pipeline("translation", model='{tmp_path}/cldr-en-de/model', trust_remote_code=True)"""
        in shown
    )


def test_a_model_that_does_not_load_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quickstart, "LOAD_BACK", "raise ImportError('no modeling_lm.py')")
    with pytest.raises(RuntimeError, match=r"(?s)the models do not load without the package.*no modeling_lm"):
        quickstart._use_without_package("lm", "translator", ["A dog"])
