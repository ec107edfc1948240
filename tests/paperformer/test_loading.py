"""What every command refuses to load: weights that are not the model's, and code that nobody asked for."""

import builtins
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from paperformer.cli import main
from paperformer.commands import loading

from .conftest import Saved
from .hub_cache import cache_repository

Refused = Callable[..., str]


@pytest.fixture
def commands(tmp_path: Path) -> Callable[[Path | str], dict[str, list[str]]]:
    """Command lines for a translation model, by the command's name."""
    for name in ("source", "reference"):
        (tmp_path / name).write_text("A dog runs.\n", "utf-8")
    source, reference, output = (str(tmp_path / name) for name in ("source", "reference", "output"))

    def of(model: Path | str) -> dict[str, list[str]]:
        return {
            "translate": ["translate", str(model), "--input", source],
            "evaluate": ["evaluate", str(model), source, "--reference", reference],
            "plot attention": ["plot", "attention", str(model), "--text", "A dog", "--output", f"{output}.svg"],
            "plot positions": ["plot", "positions", str(model), "--output", f"{output}.svg"],
            "average": ["average", str(model), "--output", output],
            "convert": ["convert", str(model), output, "--to", "marian"],
            "push": ["push", str(model), "someone/model"],
        }

    return of


EVERY = ["translate", "evaluate", "plot attention", "plot positions", "average", "convert", "push"]


@pytest.fixture
def copied(seq2seq: Saved, tmp_path: Path) -> Path:
    return Path(shutil.copytree(seq2seq.folder, tmp_path / "model"))


def change_config(folder: Path, **fields: Any) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | fields), "utf-8")


@pytest.mark.parametrize("command", EVERY)
def test_weights_of_fewer_layers_are_refused(
    command: str, commands: Callable[[Path], dict[str, list[str]]], copied: Path, refused: Refused
) -> None:
    change_config(copied, decoder_layers=2)
    said = refused(*commands(copied)[command])
    assert said.startswith(str(copied))
    assert " missing (model.decoder.layers.1." in said
    assert said.endswith("weights and config.json must be of one model, both as they were saved")


@pytest.mark.parametrize("command", EVERY)
def test_weights_that_are_not_finite_are_refused(
    command: str, commands: Callable[[Path], dict[str, list[str]]], copied: Path, refused: Refused
) -> None:
    weights = load_file(copied / "model.safetensors")
    save_file(
        {name: tensor.fill_(torch.nan) for name, tensor in weights.items()},
        copied / "model.safetensors",
        metadata={"format": "pt"},
    )
    said = refused(*commands(copied)[command])
    assert said.startswith(str(copied))
    assert " tensors have values that are NaN or infinite (" in said


def test_a_language_model_is_checked_as_well(lm: Saved, tmp_path: Path, refused: Refused) -> None:
    folder = Path(shutil.copytree(lm.folder, tmp_path / "model"))
    change_config(folder, num_hidden_layers=3)
    assert " missing (model.layers.1." in refused("generate", folder, "A dog")


# --- code that a folder brings along ---

CODE = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import MarianConfig, MarianMTModel

class OddConfig(MarianConfig):
    model_type = "odd"

class OddModel(MarianMTModel):
    config_class = OddConfig
"""


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that foreign code would write."""
    return tmp_path / "it ran"


@pytest.fixture
def foreign(seq2seq: Saved, tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of no known family with code of its own; standard input says yes to every question."""
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "foreign"
    folder.mkdir()
    seq2seq.tokenizer.save_pretrained(folder)
    (folder / "odd_code.py").write_text(CODE.format(marker=str(marker)), "utf-8")
    names = {"AutoConfig": "OddConfig", "AutoModelForSeq2SeqLM": "OddModel", "AutoModelForCausalLM": "OddModel"}
    size = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    config = {"model_type": "odd", "architectures": ["OddModel"], "is_encoder_decoder": True, "vocab_size": 300, **size}
    config |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "pad_token_id": 0}
    config |= {"decoder_start_token_id": 1, "eos_token_id": 2, "bos_token_id": 1, "max_position_embeddings": 64}
    config["auto_map"] = {name: f"odd_code.{code}" for name, code in names.items()}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


@pytest.mark.parametrize("command", EVERY)
def test_code_of_a_folder_is_not_run(
    command: str, commands: Callable[[Path], dict[str, list[str]]], foreign: Path, marker: Path, refused: Refused
) -> None:
    said = refused(*commands(foreign)[command])
    assert str(foreign) in said
    if command != "push":  # which knows our families only
        assert "without running the Python files that it brings along; read them, and where a command has --tr" in said
    assert not marker.exists()


def test_code_of_a_repository_is_not_run(
    commands: Callable[[str], dict[str, list[str]]],
    foreign: Path,
    marker: Path,
    tmp_path: Path,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache_repository(tmp_path / "cache", "someone/odd", {"main": foreign})
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "someone/odd is no model that can be loaded without running" in refused(
        *commands("someone/odd")["translate"]
    )
    assert not marker.exists()


def test_code_of_a_tokenizer_is_not_run(foreign: Path, marker: Path, refused: Refused) -> None:
    settings = json.loads((foreign / "tokenizer_config.json").read_text("utf-8"))
    settings |= {"tokenizer_class": "OddTokenizer", "auto_map": {"AutoTokenizer": [None, "odd_code.OddTokenizer"]}}
    (foreign / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    assert "without running the Python files" in refused("tokenizer", "show", foreign)
    assert not marker.exists()


def test_code_of_a_folder_is_run_for_who_trusts_it(
    commands: Callable[[Path], dict[str, list[str]]], foreign: Path, marker: Path, refused: Refused
) -> None:
    said = refused(*commands(foreign)["translate"], "--trust_remote_code")
    assert marker.exists()
    assert "no file named" in said  # weights are what it lacks


def test_our_own_families_run_no_code_of_their_folder(
    commands: Callable[[Path], dict[str, list[str]]], copied: Path, marker: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even for who would trust it: the installed code computes them."""
    for file in copied.glob("*.py"):
        file.write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n", "utf-8")
    main([*commands(copied)["translate"], "--trust_remote_code"])
    assert capsys.readouterr().out.count("\n") == 1
    assert not marker.exists()
    assert AutoModelForSeq2SeqLM.from_pretrained(copied).config.model_type == "paperformer-seq2seq"


@pytest.mark.parametrize("smallest", [10, 10**9])
def test_only_large_models_are_packed(copied: Path, monkeypatch: pytest.MonkeyPatch, smallest: int) -> None:
    monkeypatch.setattr(loading, "PARAMETERS_TO_PACK", smallest)
    model = loading.load_model(str(copied), "translation")
    assert hasattr(model, "has_packed_weights") is (smallest == 10)
