"""Training further what was trained before."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from paperformer.tokenization import train_tokenizer
from paperformer.training.console.input_error import InputError
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.run import main, make_tokenizers
from paperformer.training.tasks import base_model
from paperformer.training.tasks.objective import Objective
from paperformer.training.tasks.protocols import Task
from paperformer.training.tasks.registry import OBJECTIVES

from ..conftest import command_line

Options = dict[str, Any]
SIZES = ("tokenizer.vocab_size", "model.")


def without_sizes(options: Options) -> Options:
    return {name: value for name, value in options.items() if not name.startswith(SIZES)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test that wants it leaves the finished run, for the others to copy."""
    return tmp_path_factory.mktemp("finished") / "base"


@pytest.fixture
def base(seq2seq_options: Options, finished: Path) -> Path:
    """The folder of a finished run."""
    if not finished.exists():
        named = {"name": finished.name, "output_dir": finished.parent, "model.dropout": 0.25}
        main(OBJECTIVES["seq2seq"], command_line(seq2seq_options | named))
    return Path(shutil.copytree(finished, Path(seq2seq_options["output_dir"]) / "base"))


@pytest.fixture
def options(seq2seq_options: Options, base: Path) -> Options:
    return without_sizes(seq2seq_options) | {"name": "further", "init_from": base}


def prepared(objective: Objective, options: Options) -> tuple[Recipe[Any], Task]:
    recipe = objective.read_recipe(command_line(options))
    splits = objective.open_splits(recipe)
    return recipe, objective.make_task(recipe, splits, make_tokenizers(objective, recipe, splits))


def test_it_begins_with_weights_configuration_and_tokenizer(options: Options, base: Path) -> None:
    recipe, task = prepared(OBJECTIVES["seq2seq"], options | {"model.dropout": 0.4, "evaluation.num_beams": 3})
    model: Any = task.build_model()
    weights = load_file(base / "model" / "model.safetensors")
    assert weights.keys() <= model.state_dict().keys()
    assert all(torch.equal(model.state_dict()[name], weights[name]) for name in weights)
    was = json.loads((base / "model" / "config.json").read_text("utf-8"))
    assert (was["dropout"], model.config.dropout, recipe.model["label_smoothing"]) == (
        0.25,
        0.4,
        was["label_smoothing"],
    )
    differing = {name for name in was if name in vars(model.config) and getattr(model.config, name) != was[name]}
    assert differing <= {"dropout", "architectures", "transformers_version", "auto_map", "dtype"}
    assert model.generation_config.num_beams == 3
    tokenizer: Any = task.scoring
    assert tokenizer.tokenizers.source.get_vocab() == AutoTokenizer.from_pretrained(base / "model").get_vocab()


@pytest.mark.parametrize("place", ["run", "model folder"])
def test_the_first_step_is_taken_from_there(options: Options, base: Path, place: str) -> None:
    """And the card says from where."""
    given = base if place == "run" else base / "model"
    tiny_steps = {"optimization.learning_rate": 1e-9, "evaluation.average_checkpoints": 0, "init_from": given}
    model = main(OBJECTIVES["seq2seq"], command_line(options | tiny_steps))
    before, after = (load_file(folder / "model.safetensors") for folder in (base / "model", model))
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    digest = hashlib.sha256((base / "model" / "model.safetensors").read_bytes()).hexdigest()
    card = (model / "README.md").read_text("utf-8")
    assert f"trained further from base (SHA-256 of its weights: {digest})" in card
    assert "from scratch" not in card
    assert "and from what base was trained on" in card


@pytest.mark.proof
def test_it_resumes_when_the_base_is_gone(options: Options, base: Path) -> None:
    main(OBJECTIVES["seq2seq"], command_line(options))
    shutil.rmtree(base)
    more = options | {"resume": "true", "optimization.max_steps": 9}
    model = main(OBJECTIVES["seq2seq"], command_line(more))
    assert "trained further from base" in (model / "README.md").read_text("utf-8")
    by_name = ["--name", "further", "--output_dir", str(options["output_dir"]), "--resume"]
    main(OBJECTIVES["seq2seq"], [*by_name, "--optimization.max_steps", "12"])
    records = (model.parent / "metrics.jsonl").read_text("utf-8").splitlines()
    assert max(json.loads(line)["step"] for line in records) == 12


def test_denoising_first_and_translation_then(seq2seq_options: Options, text_folder: Path, pairs_folder: Path) -> None:
    first = seq2seq_options | {"name": "first", "data.dataset": text_folder, "data.context_length": 24}
    first |= {"tokenizer.vocab_size": 320, "evaluation.num_beams": 1}
    first = {name: value for name, value in first.items() if name not in NOT_OF_TEXT}
    folder = main(OBJECTIVES["denoising"], command_line(first)).parent
    then = without_sizes(seq2seq_options) | {"name": "then", "init_from": folder}
    model = main(OBJECTIVES["seq2seq"], command_line(then))
    loaded = AutoModelForSeq2SeqLM.from_pretrained(model)
    assert loaded.config.vocab_size == json.loads((folder / "model" / "config.json").read_text())["vocab_size"]


NOT_OF_TEXT = {"data.source_language", "data.target_language", "data.max_length"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.hidden_size": 32}, "model.hidden_size is 32, and that of {base} is 16; leave it out, or train from"),
        ({"model.norm_position": "pre"}, "model.norm_position is pre, and that of {base} is post; leave it out"),
        ({"tokenizer.path": "x"}, "tokenizer.path is x; with init_from the tokenizer is the model's"),
        ({"init_from": "/none"}, "init_from: there is no folder /none"),
        ({"init_from": "{data}"}, "init_from: {data} is no finished run and no model's folder: no config.json with"),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: Options, base: Path, pairs_folder: Path, changes: Options, message: str
) -> None:
    fill = {"base": base, "data": pairs_folder}
    changes = {name: str(value).format(**fill) for name, value in changes.items()}
    with pytest.raises(InputError, match=re.escape(message.format(**fill))):
        OBJECTIVES["seq2seq"].read_recipe(command_line(options | changes))


def test_a_model_of_another_family_is_refused(lm_options: Options, base: Path) -> None:
    with pytest.raises(
        InputError, match=f"init_from: {base} holds a paperformer-seq2seq, and this needs a paperformer-lm"
    ):
        OBJECTIVES["lm"].read_recipe(command_line(without_sizes(lm_options) | {"init_from": base}))


def test_one_that_can_be_converted_is_told_how(options: Options, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "marian"}')
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match=f"convert it first: paperformer convert {tmp_path} FOLDER --from marian"):
        OBJECTIVES["seq2seq"].read_recipe(command_line(options | {"init_from": tmp_path}))


def test_a_tokenizer_that_is_not_the_model_s_is_refused(options: Options, base: Path) -> None:
    train_tokenizer(
        ["many words of another text"] * 9 + [str(n) for n in range(999)], 400, append_eos=True
    ).save_pretrained(base / "model")
    with pytest.raises(InputError, match=r"has \d+ entries, and its model \d+; they do not belong together"):
        prepared(OBJECTIVES["seq2seq"], options)


def test_weights_that_are_not_the_model_s_are_refused(options: Options, base: Path) -> None:
    config = json.loads((base / "model" / "config.json").read_text("utf-8"))
    (base / "model" / "config.json").write_text(json.dumps(config | {"decoder_layers": 2}))
    _, task = prepared(OBJECTIVES["seq2seq"], options)
    with pytest.raises(
        InputError, match=r"the weights are not those of the configuration.*missing \(model.decoder.layers.1"
    ):
        task.build_model()


def test_a_damaged_file_is_refused(options: Options, base: Path) -> None:
    weights = base / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    _, task = prepared(OBJECTIVES["seq2seq"], options)
    with pytest.raises(InputError, match=f"init_from: the weights of {base} cannot be read: "):
        task.build_model()


def test_a_model_of_the_hub(options: Options, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_model, "snapshot_download", lambda name, allow_patterns: str(base / name.split("/")[1]))
    model = main(OBJECTIVES["seq2seq"], command_line(options | {"init_from": "somebody/model"}))
    card = (model / "README.md").read_text("utf-8")
    assert "base_model: somebody/model" in card
    assert "trained further from somebody/model (SHA-256" in card
    with pytest.raises(
        InputError, match=r"init_from: somebody/tokenizer on the Hub is no model: no config.json with weights"
    ):
        OBJECTIVES["seq2seq"].read_recipe(command_line(options | {"init_from": "somebody/tokenizer"}))


@pytest.mark.parametrize("said", ["peer closed connection without sending complete message body", ""])
def test_a_connection_that_breaks_is_one_line(options: Options, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, allow_patterns: list[str]) -> str:
        raise base_model.CLIENT_ERROR(said)

    monkeypatch.setattr(base_model, "snapshot_download", broken)
    with pytest.raises(InputError, match="init_from: the connection broke while somebody/model was fetched") as refused:
        OBJECTIVES["seq2seq"].read_recipe(command_line(options | {"init_from": "somebody/model"}))
    assert "\n" not in str(refused.value)
    assert f"({said or base_model.CLIENT_ERROR.__name__}); the same command" in str(refused.value)
