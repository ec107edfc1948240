import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from paperformer.cli import main

Refused = Callable[..., str]
RECIPE = """\
name: tiny
data: {source_language: en}
optimization: {max_steps: 40}
evaluation: {select_by: bleu}
"""
BLEU = {10: 3.0, 20: 9.0, 30: 8.0}  # step 40 is not validated


@pytest.fixture
def run(seq2seq: Any, tmp_path: Path) -> Path:
    """A run that was interrupted at step 40: every weight of a checkpoint is the number of its step."""
    folder = tmp_path / "runs" / "tiny"
    (folder / "tokenizer").mkdir(parents=True)
    for name in ("config.json", "generation_config.json"):
        shutil.copy(seq2seq.folder / name, folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    for name in ("architectures", "auto_map", "custom_pipelines"):  # only a model writes these
        config.pop(name)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    seq2seq.tokenizer.save_pretrained(folder / "tokenizer")
    (folder / "recipe.yaml").write_text(RECIPE, "utf-8")
    records = [{"step": step, "validation": {"loss": 1.0, "bleu": bleu}, "seconds": 1.0} for step, bleu in BLEU.items()]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    for step in (10, 20, 30, 40):
        save_checkpoint(folder, step, seq2seq.folder)
    return folder


def save_checkpoint(run: Path, step: int, like: Path, file: str = "model.safetensors") -> None:
    weights = load_file(like / "model.safetensors")
    path = run / "checkpoints" / f"step-{step}"
    path.mkdir(parents=True, exist_ok=True)
    save_file({name: torch.full_like(tensor, step) for name, tensor in weights.items()}, path / file)


def number(folder: Path) -> float:
    """The one number that all weights are."""
    values = {
        value for tensor in load_file(folder / "model.safetensors").values() for value in tensor.unique().tolist()
    }
    assert len(values) == 1
    return values.pop()


@pytest.mark.parametrize(
    ("options", "expected"),
    [(["--last", "2"], 35.0), (["--best", "2"], 25.0), (["--best", "3"], 20.0), (["--last=1"], 40.0)],
)
def test_checkpoints_of_a_run(run: Path, tmp_path: Path, options: list[str], expected: float, seq2seq: Any) -> None:
    output = tmp_path / "mean"
    main(["average", str(run), "--output", str(output), *options])
    assert number(output) == expected
    model = AutoModelForSeq2SeqLM.from_pretrained(output)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert (model.generation_config.num_beams, model.generation_config.max_new_tokens) == (2, 7)
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert tokenizer("A dog").input_ids == seq2seq.tokenizer("A dog").input_ids
    assert {"README.md", "evaluation.json"}.isdisjoint(path.name for path in output.iterdir())
    # All that the model's own folder has: its code as well.
    assert {path.name for path in seq2seq.folder.iterdir()} - {path.name for path in output.iterdir()} == {
        "README.md",
        "evaluation.json",
    }


def test_checkpoints_by_their_folders(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(run / "checkpoints" / f"step-{step}") for step in (10, 20, 40)]
    main(["average", *paths, "--output", str(tmp_path / "mean")])
    assert number(tmp_path / "mean") == pytest.approx(70 / 3)
    said = capsys.readouterr().out
    assert all(path in said for path in paths)
    assert said.endswith(f"\n{tmp_path / 'mean'}\n")


def test_moving_averages_stand_for_their_checkpoints(run: Path, seq2seq: Any, tmp_path: Path) -> None:
    save_checkpoint(run, 20, seq2seq.folder, file="ema.safetensors")
    save_file(
        {name: tensor * 5 for name, tensor in load_file(run / "checkpoints/step-20/ema.safetensors").items()},
        run / "checkpoints/step-20/ema.safetensors",
    )
    main(["average", str(run), "--best", "1", "--output", str(tmp_path / "mean")])
    assert number(tmp_path / "mean") == 100


def test_a_run_of_an_earlier_version(run: Path, seq2seq: Any, tmp_path: Path) -> None:
    """It has its configuration in its finished model only."""
    (run / "config.json").unlink()
    shutil.copytree(seq2seq.folder, run / "model")
    main(["average", str(run), "--last", "2", "--output", str(tmp_path / "mean")])
    assert number(tmp_path / "mean") == 35


def test_models_of_two_vocabularies_and_of_other_families(two_vocabularies: Any, lm: Any, tmp_path: Path) -> None:
    for saved, auto_class in ((two_vocabularies, AutoModelForSeq2SeqLM), (lm, AutoModelForCausalLM)):
        output = tmp_path / saved.folder.name
        main(["average", str(saved.folder), str(saved.folder), "--output", str(output)])
        model = auto_class.from_pretrained(output)
        assert all(tensor.equal(saved.model.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert (tmp_path / "two-vocabularies" / "target_tokenizer" / "tokenizer.json").is_file()


def changed(folder: Path, copy: Path, **fields: Any) -> Path:
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text("utf-8"))
    (copy / "config.json").write_text(json.dumps(config | fields), "utf-8")
    return copy


def test_models_that_are_not_one(seq2seq: Any, lm: Any, tmp_path: Path, refused: Refused) -> None:
    """Weights of the same names and shapes, that mean something else."""
    output = ("--output", tmp_path / "mean")
    pre = changed(seq2seq.folder, tmp_path / "pre", norm_position="peri")
    assert "differ in norm_position; only weights of one model average" in refused(
        "average", seq2seq.folder, pre, *output
    )
    assert not (tmp_path / "mean").exists()
    dropout = changed(seq2seq.folder, tmp_path / "dropout", dropout=0.3)  # which says nothing about trained weights
    main(["average", str(seq2seq.folder), str(dropout), *map(str, output)])


def test_another_vocabulary(seq2seq: Any, tmp_path: Path, refused: Refused) -> None:
    other = changed(seq2seq.folder, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text("utf-8"))
    tokenizer["model"]["merges"].pop()
    (other / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    said = refused("average", seq2seq.folder, other, "--output", tmp_path / "mean")
    assert "differ in the tokenizer; only weights of one model average" in said


def test_weights_that_do_not_fit_their_configuration(seq2seq: Any, tmp_path: Path, refused: Refused) -> None:
    weights = load_file(seq2seq.folder / "model.safetensors")
    name = next(name for name in weights if "layers.0" in name)
    for change in ("lack", "more", "shape"):
        folder = changed(seq2seq.folder, tmp_path / change)
        odd = {key: tensor for key, tensor in weights.items() if change != "lack" or key != name}
        odd |= {"odd": torch.zeros(1)} if change == "more" else {}
        odd |= {name: torch.zeros(1)} if change == "shape" else {}
        save_file(odd, folder / "model.safetensors", metadata={"format": "pt"})
        said = refused("average", folder, "--output", tmp_path / "mean")
        kind = {
            "lack": f"1 missing ({name})",
            "more": "1 unknown (odd)",
            "shape": f"1 of another shape ({name} is (1,)",
        }
        assert said.startswith(f"{folder / 'model.safetensors'}: the weights are not those of the configuration")
        assert kind[change] in said


def test_bad_command_lines(run: Path, seq2seq: Any, tmp_path: Path, refused: Refused) -> None:
    output = ("--output", tmp_path / "mean")
    checkpoint = run / "checkpoints" / "step-10"
    assert "output" in refused("average", run, "--last", 2)
    assert "give either --last K or --best K" in refused("average", run, *output)
    assert "give either --last K or --best K" in refused("average", run, *output, "--last", 2, "--best", 2)
    assert "--last is 5; " in refused("average", run, *output, "--last", 5)
    assert "has 4 checkpoints" in refused("average", run, *output, "--last", 0)
    assert "--best is 4; " in refused("average", run, *output, "--best", 4)
    assert "has 3 checkpoints that were validated" in refused("average", run, *output, "--best", -1)
    assert "--last is for one run's folder" in refused("average", checkpoint, *output, "--last", 1)
    assert "--best is for one run's folder" in refused("average", checkpoint, *output, "--best", 1)
    assert "there is no folder nowhere" in refused("average", "nowhere", *output)
    assert "is no model's folder, and no checkpoint of a run" in refused("average", tmp_path, *output)
    assert "exists; give a new folder" in refused("average", checkpoint, "--output", run)
    (checkpoint / "model.safetensors").write_bytes(b"half")
    assert "holds no weights that can be read" in refused("average", checkpoint, *output)
    (run / "metrics.jsonl").write_text("x\n")
    assert "cannot be read: damaged metrics.jsonl" in refused("average", run, *output, "--last", 1)
    assert not (tmp_path / "mean").exists()
