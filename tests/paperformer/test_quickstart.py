import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from paperformer import PaperformerLMConfig, PaperformerSeq2SeqConfig, quickstart
from paperformer.training.recipe.data import ParallelData, TextData
from paperformer.training.recipe.parsing import parse_recipe
from paperformer.training.tasks.objective import Objective


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, lm: Any, seq2seq: Any) -> list[list[str]]:
    """Puts two finished models where training would; returns the arguments it was called with."""
    calls: list[list[str]] = []

    def run_training(objective: Objective, arguments: list[str]) -> Path:
        calls.append(arguments)
        saved = seq2seq if objective.name == "seq2seq" else lm
        path = Path(arguments[arguments.index("--output_dir") + 1]) / arguments[1] / "model"
        shutil.copytree(saved.folder, path)
        (path.parent / "evaluation").mkdir()
        sample = ["A dog runs on the beach.", "Ein Hund läuft am Strand.", "..."]
        (path.parent / "evaluation" / "samples.jsonl").write_text(f"{json.dumps(sample)}\n" * 9)
        return path

    monkeypatch.setattr(quickstart, "run_training", run_training)
    return calls


@pytest.mark.parametrize("fast", [False, True])
def test_the_recipes_are_valid(
    fast: bool, trained: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(quickstart, "_use_without_package", lambda lm, translator, samples: (samples, "passage"))
    quickstart.run_quickstart(tmp_path, fast=fast)
    lm_arguments, translator_arguments = trained
    recipes = (
        parse_recipe(lm_arguments, PaperformerLMConfig, TextData),
        parse_recipe(translator_arguments, PaperformerSeq2SeqConfig, ParallelData),
    )
    for recipe in recipes:
        assert (recipe.optimization.max_steps == 40) == fast
        assert recipe.run.overwrite
        assert recipe.data.dataset.startswith("built-in:")  # no hub is needed


def test_both_models_are_loaded_back_and_used(
    trained: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
