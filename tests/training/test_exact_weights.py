"""A model is loaded with exactly its weights, or not at all."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BertConfig, BertForMaskedLM, BertForPreTraining, PreTrainedModel

from paperformer import PaperformerForCausalLM, PaperformerLMConfig
from paperformer.training.console.input_error import InputError
from paperformer.training.exact_weights import load_exactly, put_weights

SIZE = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "not tied"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    torch.manual_seed(1)
    return PaperformerForCausalLM(PaperformerLMConfig(**SIZE, num_hidden_layers=2, tie_word_embeddings=request.param))


@pytest.fixture
def folder(model: PreTrainedModel, tmp_path: Path) -> Path:
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def more_layers(folder: Path, count: int) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": count}), "utf-8")


def a_layer_of(weights: dict[str, torch.Tensor]) -> str:
    return next(name for name in weights if "layers.1" in name and name.endswith("weight"))


DAMAGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a layer too few": (lambda f: more_layers(f, 3), [" missing (model.layers.2.", ", ...)"]),
    "a layer too many": (lambda f: more_layers(f, 1), [" unknown (model.layers.1.", ", ...)"]),
    "a tensor lost": (lambda f: rewrite(f, lambda w: w.pop(a_layer_of(w))), ["1 missing (model.layers.1."]),
    "an odd tensor": (lambda f: rewrite(f, lambda w: w.update(odd=torch.zeros(1))), ["1 unknown (odd)"]),
    "another shape": (
        lambda f: rewrite(f, lambda w: w.update({a_layer_of(w): torch.zeros(3, 5)})),
        ["1 of another shape (model.layers.1.", " is (3, 5), not ("],
    ),
    "one NaN": (
        lambda f: rewrite(f, lambda w: w[a_layer_of(w)].view(-1)[1].fill_(torch.nan)),
        ["1 of ", " NaN or inf"],
    ),
    "infinite": (
        lambda f: rewrite(f, lambda w: [t.fill_(-torch.inf) for t in w.values()]),
        ["NaN or infinite", ", ..."],
    ),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_other_weights_are_refused(folder: Path, damage: Callable[[Path], object], said: list[str]) -> None:
    damage(folder)
    with pytest.raises(InputError) as refusal:
        load_exactly(AutoModelForCausalLM.from_pretrained, str(folder))
    message = str(refusal.value)
    assert message.startswith(f"{folder}: ")
    assert "\n" not in message
    assert len(message) < 600
    for words in said:
        assert words in message


def test_its_own_weights_are_loaded(model: PreTrainedModel, folder: Path) -> None:
    loaded, left_out = load_exactly(AutoModelForCausalLM.from_pretrained, str(folder), called="mine")
    assert left_out == []
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert all(tensor.equal(model.state_dict()[name]) for name, tensor in loaded.state_dict().items())


def test_heads_of_others_are_left_out_and_their_layers_are_not(tmp_path: Path) -> None:
    BertForPreTraining(BertConfig(**SIZE, num_hidden_layers=2)).save_pretrained(tmp_path)
    _, left_out = load_exactly(BertForMaskedLM.from_pretrained, str(tmp_path))
    assert "cls.seq_relationship.weight" in left_out
    more_layers(tmp_path, 1)
    with pytest.raises(InputError, match=r"16 unknown \(bert\.encoder\.layer\.1\."):
        load_exactly(BertForMaskedLM.from_pretrained, str(tmp_path))


def test_weights_are_put_exactly(model: PreTrainedModel) -> None:
    weights = {name: torch.full_like(tensor, 0.5) for name, tensor in model.state_dict().items()}
    once = {name: tensor for name, tensor in weights.items() if name not in model.all_tied_weights_keys}
    other = PaperformerForCausalLM(model.config)
    put_weights(other, once, "step-3")
    assert all(bool((tensor == 0.5).all()) for tensor in other.state_dict().values())
    name = a_layer_of(once)
    changes = {"1 missing": {n: t for n, t in once.items() if n != name}, "1 unknown": once | {"odd": torch.zeros(1)}}
    changes["1 of another shape"] = once | {name: torch.zeros(2)}
    for kind, changed in changes.items():
        with pytest.raises(InputError, match=rf"^step-3: the weights are not .*{kind} \("):
            put_weights(other, changed, "step-3")
