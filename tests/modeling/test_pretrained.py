"""What every model promises as a member of the transformers library: initialisation, saving, loading, checkpointing."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.testing_utils import CaptureLogger

from paperformer.modeling.pretrained import PaperformerPreTrainedModel

KINDS = [
    {"position_embedding_type": "sinusoidal", "norm_position": "post"},
    {"position_embedding_type": "learned", "norm_position": "pre", "norm_type": "rmsnorm"},
    {"position_embedding_type": "rope", "norm_position": "peri", "gated_mlp": True, "hidden_act": "silu"},
    {"position_embedding_type": "none", "norm_position": "pre", "use_bias": False},
    {"position_embedding_type": "alibi", "norm_position": "pre", "qk_norm": True},
    {"position_embedding_type": "relative", "norm_position": "post", "embedding_norm": True},
]

ATTENTION = [f"{name}_proj.{kind}" for name in "qkvo" for kind in ("weight", "bias")]
NORM = ["norm.weight", "norm.bias"]
MLP = [f"mlp.{name}_proj.{kind}" for name in ("up", "down") for kind in ("weight", "bias")]
ENCODER_LAYER = [f"self_attn.{name}" for name in ATTENTION] + MLP
ENCODER_LAYER += [f"{sub_layer}_residual.{name}" for sub_layer in ("self_attn", "mlp") for name in NORM]
CROSS_ATTENTION = [f"cross_attn.{name}" for name in ATTENTION] + [f"cross_attn_residual.{name}" for name in NORM]


def inputs(model: PreTrainedModel) -> dict[str, Tensor]:
    """Labels included; the first row is longer than the second."""
    input_ids = torch.randint(3, 50, (2, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    return {"input_ids": input_ids, "attention_mask": mask, "labels": input_ids.masked_fill(mask == 0, -100)}


def inputs_of_base(model: PreTrainedModel) -> dict[str, Tensor]:
    given = inputs(model)
    labels = given.pop("labels")
    return given | {"decoder_input_ids": labels.clamp(min=0)} if model.config.is_encoder_decoder else given


def logits(model: PreTrainedModel) -> Tensor:
    with torch.no_grad():
        return model.eval()(**inputs(model)).logits


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["position_embedding_type"])
def test_saving_and_loading_keeps_the_outputs(make_any_model, kind, tmp_path):
    model = make_any_model(**kind)
    model.save_pretrained(tmp_path)
    for options in ({}, {"device_map": "cpu"}):  # both build the model on the meta device and fill it from the file
        loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True, **options)
        assert not any(info.values()), info
        assert torch.equal(logits(loaded), logits(model))
        assert not loaded.training


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["position_embedding_type"])
def test_a_model_made_on_the_meta_device_becomes_the_same_model(make_any_model, kind):
    model = make_any_model(**kind)
    with torch.device("meta"):
        shell = type(model)(model.config)
    assert {tensor.device.type for tensor in shell.state_dict().values()} == {"meta"}
    shell.load_state_dict(model.state_dict(), assign=True)
    shell.tie_weights()
    assert shell.state_dict().keys() == model.state_dict().keys()
    if kind["position_embedding_type"] != "rope":  # RoPE's frequencies are refilled by from_pretrained
        assert torch.equal(logits(shell), logits(model))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["position_embedding_type"])
def test_a_copy_has_the_same_outputs_and_its_own_weights(make_any_model, kind):
    model = make_any_model(**kind)
    duplicate = copy.deepcopy(model)
    assert torch.equal(logits(duplicate), logits(model))
    fresh = type(model)(model.config)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(logits(fresh), logits(model))
    with torch.no_grad():
        duplicate.lm_head.weight.zero_()
    assert duplicate.get_input_embeddings().weight.count_nonzero() == 0  # the copy is tied as the original is
    assert model.lm_head.weight.count_nonzero()


def test_tied_weights_are_saved_once(make_any_model, tmp_path):
    model = make_any_model()
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as saved:
        names = set(saved.keys())
        total = sum(saved.get_tensor(name).numel() for name in names)
    assert total == model.num_parameters()
    assert len([name for name in names if name.endswith(("embed_tokens.weight", "lm_head.weight"))]) == 1


DAMAGES: dict[str, Callable[[dict[str, Tensor], str], dict[str, Tensor]]] = {
    "missing": lambda weights, name: {other: weight for other, weight in weights.items() if other != name},
    "unexpected": lambda weights, name: weights | {"another.weight": weights[name].clone()},
    "mismatch": lambda weights, name: weights | {name: torch.zeros(3, 3)},
    "not finite": lambda weights, name: weights | {name: weights[name] / weights[name].ne(weights[name].max())},
}


@pytest.mark.parametrize("layer", ["embed_tokens.weight", "layers.1.self_attn.q_proj.weight"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_with_the_weights_is_said_with_their_names(make_any_model, damage, layer, tmp_path):
    """At the level at which transformers speaks by default; tied weights are one tensor, and one name is enough."""
    model = make_any_model(use_bias=True)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = next(name for name in weights if name.endswith(layer))
    save_file(DAMAGES[damage](weights, name), tmp_path / "model.safetensors", metadata={"format": "pt"})
    said = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_warning()
    try:
        with CaptureLogger(transformers.logging.get_logger("transformers")) as captured:
            if damage == "mismatch":
                with pytest.raises(RuntimeError, match="report"):
                    type(model).from_pretrained(tmp_path)
            else:
                type(model).from_pretrained(tmp_path)
    finally:
        transformers.logging.set_verbosity(said)
    assert damage.upper() in captured.out or damage in captured.out
    assert ("another.weight" if damage == "unexpected" else name) in captured.out


def test_nothing_is_said_of_weights_that_are_as_they_should_be(make_any_model, tmp_path):
    model = make_any_model()
    model.save_pretrained(tmp_path)
    with CaptureLogger(transformers.logging.get_logger("transformers")) as captured:
        type(model).from_pretrained(tmp_path)
        type(model).from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert captured.out == ""


def test_loading_in_bfloat16(make_any_model, tmp_path):
    model = make_any_model(position_embedding_type="rope")
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}
    assert {b.dtype for name, b in loaded.named_buffers() if "inv_freq" in name} == {torch.float32}
    assert logits(loaded).dtype == torch.bfloat16
    # 8 bits of mantissa, through two layers
    difference = (logits(loaded).float() - logits(model)).norm() / logits(model).norm()
    assert difference < 0.05


def test_the_base_model_and_the_model_with_a_head_read_each_others_folders(make_any_model, tmp_path):
    model = make_any_model(use_bias=False)
    base_class = type(model.base_model)
    model.save_pretrained(tmp_path / "head")
    base = base_class.from_pretrained(tmp_path / "head")
    ours, theirs = base.state_dict(), model.base_model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    base.save_pretrained(tmp_path / "base")
    again, info = type(model).from_pretrained(tmp_path / "base", output_loading_info=True)
    assert not any("transform" not in name for name in info["missing_keys"])  # what only masked prediction has
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)
    assert torch.equal(again.base_model(**inputs_of_base(again))[0], model.base_model(**inputs_of_base(model))[0])


def test_a_finished_folder_is_left_by_the_main_process_only(make_any_model, monkeypatch, tmp_path):
    finished: list[tuple[PreTrainedModel, Any]] = []
    monkeypatch.setattr(PaperformerPreTrainedModel, "finish_saved_folder", lambda *args: finished.append(args))
    model = make_any_model()
    model.save_pretrained(tmp_path, is_main_process=False)
    assert finished == []
    assert not (tmp_path / "config.json").exists()
    model.save_pretrained(tmp_path)
    assert finished == [(model, tmp_path)]
    monkeypatch.setattr(PaperformerPreTrainedModel, "finish_saved_folder", None)  # as in remote code
    model.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").is_file()


def test_parameter_names_of_the_encoder_decoder(make_seq2seq):
    """Every published checkpoint carries these names: they never change."""
    model = make_seq2seq(encoder_layers=1, decoder_layers=1)
    assert sorted(model.state_dict()) == sorted(
        [
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
            *(f"model.encoder.layers.0.{name}" for name in ENCODER_LAYER),
            *(f"model.decoder.layers.0.{name}" for name in ENCODER_LAYER + CROSS_ATTENTION),
            "lm_head.weight",
        ]
    )


def test_parameter_names_of_the_encoder(make_encoder):
    names = ["model.embed_tokens.weight", "model.embed_token_types.weight", "model.positions.table.weight"]
    names += [f"model.embed_norm.{kind}" for kind in ("weight", "bias")]
    names += [f"model.layers.{i}.{name}" for i in range(2) for name in ENCODER_LAYER]
    names += [f"transform.{name}.{kind}" for name in ("dense", "norm") for kind in ("weight", "bias")]
    names += ["lm_head.bias"]  # lm_head.weight is the embedding
    assert sorted(names) == sorted(name for name, _ in make_encoder().named_parameters())
    pooled = make_encoder(pooling="first").base_model
    assert not any("pooler" in name for name, _ in pooled.named_parameters())  # masked prediction has no use for it


@pytest.mark.parametrize(("options", "names"), [
    ({"position_embedding_type": "relative"}, ["model.positions.table.weight"]),
    ({"position_embedding_type": "alibi"}, []),
    ({"embedding_norm": True}, ["model.embed_norm.weight"]),
    ({"qk_norm": True}, [f"model.layers.{i}.self_attn.{name}_norm.weight" for i in range(2) for name in "qk"]),
    ({"attention_window": 3, "attention_stride": 2}, []),
    ({"position_embedding_type": "none", "linear_attention": True}, []),
])  # fmt: skip
def test_parameter_names_of_options(make_lm, options, names):
    plain = {name for name, _ in make_lm().named_parameters()}
    assert {name for name, _ in make_lm(**options).named_parameters()} == plain | set(names)


def test_parameter_names_of_the_language_model(make_lm):
    model = make_lm(num_hidden_layers=1, norm_position="peri", position_embedding_type="learned")
    assert sorted(model.state_dict()) == sorted(
        [
            "model.embed_tokens.weight",
            "model.positions.table.weight",
            *(f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkvo"),
            *(f"model.layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
            *(
                f"model.layers.0.{sub_layer}_residual.{norm}.weight"
                for sub_layer in ("self_attn", "mlp")
                for norm in ("norm", "output_norm")
            ),
            "model.norm.weight",
            "lm_head.weight",
        ]
    )


WIDE = {"vocab_size": 400, "hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 4, "use_bias": True}


def linear_layers(model: PreTrainedModel) -> dict[str, torch.nn.Linear]:
    """All but the output layer, which is tied to the embedding."""
    modules = model.base_model.named_modules()
    return {name: module for name, module in modules if isinstance(module, torch.nn.Linear)}


def std(module: torch.nn.Linear | torch.nn.Embedding) -> float:
    return float(module.weight.detach().std())


def test_xavier_initialisation(make_any_model):
    """Uniform within sqrt(6 / (fan in + fan out)); embeddings N(0, 1/E), so that scaled by sqrt(E) they are N(0, 1)."""
    model = make_any_model(**WIDE, initialization="xavier", position_embedding_type="learned")
    for module in linear_layers(model).values():
        bound = (6 / (module.in_features + module.out_features)) ** 0.5
        assert 0.98 * bound < module.weight.abs().max() <= bound
        assert std(module) == pytest.approx(bound / 3**0.5, rel=0.05)
        assert module.bias.count_nonzero() == 0
    embeddings = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Embedding)}
    assert {name.rpartition(".")[2] for name in embeddings} >= {"embed_tokens", "table"}
    for module in embeddings.values():
        assert std(module) == pytest.approx(64**-0.5, rel=0.06)
        assert module.weight.abs().max() > 2.5 * 64**-0.5  # not uniform


def test_normal_initialisation(make_any_model):
    model = make_any_model(**WIDE, initialization="normal", initializer_range=0.05)
    for module in (*linear_layers(model).values(), model.get_input_embeddings()):
        assert std(module) == pytest.approx(0.05, rel=0.05)
        assert module.weight.abs().max() > 2.5 * 0.05
    assert all(module.bias.count_nonzero() == 0 for module in linear_layers(model).values())


def test_gpt2_initialisation_scales_the_projections_into_the_residual_stream(make_any_model):
    """By 1/sqrt(number of them): two a layer, three in a decoder with cross-attention (Radford et al. 2019)."""
    model = make_any_model(**WIDE, initialization="gpt2", initializer_range=0.05)
    scale = {"layers": (2 * 2) ** -0.5, "encoder": (2 * 2) ** -0.5, "decoder": (3 * 2) ** -0.5}
    for name, module in linear_layers(model).items():
        stack, projection = name.split(".")[0], name.split(".")[-1]
        expected = 0.05 * (scale[stack] if projection in ("o_proj", "down_proj") else 1)
        assert std(module) == pytest.approx(expected, rel=0.05), name
    assert std(model.get_input_embeddings()) == pytest.approx(0.05, rel=0.05)


def test_each_stack_counts_its_own_layers(make_seq2seq):
    model = make_seq2seq(**{**WIDE, "initialization": "gpt2", "encoder_layers": 5, "decoder_layers": 1})
    assert std(model.model.encoder.layers[0].mlp.down_proj) == pytest.approx(0.3 * (2 * 5) ** -0.5, rel=0.05)
    assert std(model.model.decoder.layers[0].mlp.down_proj) == pytest.approx(0.3 * 3**-0.5, rel=0.05)


def test_the_seed_decides_the_weights(make_any_model):
    first, second = make_any_model().state_dict(), make_any_model().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_every_parameter_learns(make_any_model, kind):
    model = make_any_model(**kind).train()
    model(**inputs(model)).loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []
    # A key's bias moves all scores of a query alike, which softmax does not see, unless RoPE turns it.
    silent = [name for name, p in model.named_parameters() if p.grad.abs().max() < 1e-9 and "k_proj.bias" not in name]
    assert silent == []


@pytest.mark.filterwarnings("ignore:.*activation_checkpointing_enable:FutureWarning")  # its name from v6 on
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(make_any_model, use_reentrant):
    """Dropout included: the recomputed forward pass drops what the first one dropped."""

    def gradients(model: PreTrainedModel) -> tuple[Tensor, dict[str, Tensor]]:
        torch.manual_seed(3)
        loss = model(**inputs(model)).loss
        loss.backward()
        return loss, {name: parameter.grad for name, parameter in model.named_parameters()}

    options = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1, "position_embedding_type": "rope"}
    plain, checkpointed = make_any_model(**options).train(), make_any_model(**options).train()
    checkpointed.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    runs: list[str] = []
    layers = {name: m for name, m in checkpointed.named_modules() if name.endswith("mlp")}
    for name, layer in layers.items():
        layer.register_forward_hook(lambda *_, name=name: runs.append(name))
    torch.testing.assert_close(gradients(checkpointed), gradients(plain))
    assert sorted(runs) == sorted([*layers, *layers])  # each ran twice, so checkpointing was on


def test_tuples_are_returned_on_request(make_any_model):
    model = make_any_model(attn_implementation="eager")
    options = {**inputs(model), "output_hidden_states": True, "output_attentions": True}
    named, positional = model(**options), model(**options, return_dict=False)
    assert isinstance(positional, tuple)
    torch.testing.assert_close(positional, named.to_tuple())


def test_the_attention_can_be_changed_later(make_any_model):
    model = make_any_model()
    assert model.config._attn_implementation == "sdpa"
    before = logits(model)
    model.set_attn_implementation("eager")
    torch.testing.assert_close(logits(model), before, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        output = model(**inputs(model), output_attentions=True)
    assert len(output.get("attentions", output.get("decoder_attentions"))) == 2


def test_no_setting_of_generation_hides_in_the_configuration(make_model, tmp_path):
    model = make_model()
    model.generation_config.num_beams = 4
    model.generation_config.max_new_tokens = 9
    model.save_pretrained(tmp_path)
    assert "num_beams" not in json.loads(Path(tmp_path / "config.json").read_text("utf-8"))
    loaded = type(model).from_pretrained(tmp_path).generation_config
    assert (loaded.num_beams, loaded.max_new_tokens, loaded.eos_token_id) == (4, 9, 2)


@torch.no_grad()
def test_a_configuration_may_ask_for_tuples(make_any_model):
    model = make_any_model()
    tokens = torch.randint(3, 50, (2, 5))
    inputs = {"input_ids": tokens, "labels": tokens}
    loss = model(**inputs).loss
    model.config.return_dict = False
    outputs = model(**inputs)
    assert isinstance(outputs, tuple)
    assert outputs[0] == loss


@pytest.mark.parametrize(("options", "implementation", "message"), [
    ({"position_embedding_type": "alibi"}, "flash_attention_2", "'alibi' adds a bias to the scores.*use 'sdpa'"),
    ({"position_embedding_type": "relative"}, "flash_attention_3", "'relative' adds a bias to the scores.*use 'sdpa'"),
    ({"attention_stride": 2}, "flash_attention_2", "attention_stride is 2, a pattern that flash attention.*use 'sdpa'"),
    ({"position_embedding_type": "none", "linear_attention": True}, "flash_attention_2", "linear_attention is True"),
    ({"position_embedding_type": "none"}, "linear_attention", "linear_attention is False"),
])  # fmt: skip
def test_an_implementation_that_computes_something_else_is_refused(make_any_model, options, implementation, message):
    with pytest.raises(ValueError, match=message):
        make_any_model(**options, attn_implementation=implementation)
    model = make_any_model(**options)
    with pytest.raises(ValueError, match=message):
        model.set_attn_implementation(implementation)


def test_linear_attention_is_never_replaced_by_a_default(make_any_model, tmp_path):
    model = make_any_model(position_embedding_type="none", linear_attention=True)
    model.save_pretrained(tmp_path)
    for options in ({}, {"attn_implementation": "sdpa"}, {"attn_implementation": "eager"}):
        loaded = type(model).from_pretrained(tmp_path, **options)
        assert loaded.config._attn_implementation == "linear_attention"
        assert torch.equal(logits(loaded), logits(model))


def test_an_implementation_set_by_hand_is_noticed_if_it_computes_something_else(make_any_model):
    model = make_any_model(position_embedding_type="none", linear_attention=True)
    model.config._attn_implementation = "eager"
    with pytest.raises(ValueError, match=r"set to 'eager' by hand, but linear_attention is True; use model\.set_attn"):
        logits(model)


@pytest.mark.parametrize("training", [True, False])
def test_logits_come_with_the_loss_unless_they_are_refused(make_any_model, training):
    model = make_any_model(label_smoothing=0.1).train(training)
    assert model(**inputs(model)).logits.shape == (2, 6, 50)
    without = model(**inputs(model), return_logits=False)
    assert without.logits is None
    torch.testing.assert_close(without.loss, model(**inputs(model)).loss)


def test_the_loss_can_be_differentiated_by_the_logits_that_come_with_it(make_any_model):
    model = make_any_model()
    output = model(**inputs(model))
    gradient = torch.autograd.grad(output.loss, output.logits)[0]
    labels = inputs(model)["labels"]
    if model.config.model_type == "paperformer-lm":  # where position t predicts token t + 1
        labels = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    one_hot = torch.nn.functional.one_hot(labels.clamp(min=0), 50)
    expected = (output.logits.softmax(-1) - one_hot) * labels.ne(-100)[..., None] / labels.ne(-100).sum()
    torch.testing.assert_close(gradient, expected.detach())
    without = model(**inputs(model), return_logits=False).loss
    torch.testing.assert_close(output.loss, without)


def test_the_loss_is_that_of_all_positions_however_many_logits_are_kept(make_model):
    model = make_model()
    output = model(**inputs(model), logits_to_keep=1)
    assert output.logits.shape[1] == 1
    torch.testing.assert_close(output.loss, model(**inputs(model)).loss)
