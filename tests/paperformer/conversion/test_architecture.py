import dataclasses
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from paperformer.conversion.architecture import Architecture, Side
from paperformer.conversion.gpt2 import GPT2
from paperformer.conversion.llama import LLAMA
from paperformer.conversion.marian import MARIAN
from paperformer.conversion.model_folder import ARCHITECTURES, TOLERANCE, compare_logits
from paperformer.training.console.input_error import InputError

from .conftest import OURS, THEIRS, random_model

OTHER_VALUES: dict[str, Any] = {
    "vocab_size": 41,
    "source_vocab_size": 41,
    "decoder_vocab_size": 41,
    "max_position_embeddings": 33,
    "n_positions": 33,
    "intermediate_size": 20,
    "n_inner": None,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "num_key_value_heads": 1,
    "head_dim": 10,
    "rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0},
    "relative_attention_num_buckets": 16,
    "relative_attention_max_distance": 64,
    "attention_window": 3,
    "attention_stride": 3,
    "type_vocab_size": 0,
    "pretraining_tp": 2,
    "summary_type": "last",
    "summary_activation": "tanh",
    "pad_token_id": 5,
    "bos_token_id": 6,
    "eos_token_id": [7, 8],
    "decoder_start_token_id": 9,
    "forced_eos_token_id": 7,
    "norm_eps": 0.03,
    "layer_norm_epsilon": 0.03,
    "layer_norm_eps": 0.03,
    "rms_norm_eps": 0.03,
    "initializer_range": 0.03,
    "init_std": 0.03,
    "classifier_dropout": 0.3,
    "activation_function": "gelu_10",
}
OTHER_VALUES |= dict.fromkeys(("hidden_size", "n_embd", "d_model"), 36)
OTHER_VALUES |= dict.fromkeys(("num_hidden_layers", "n_layer", "encoder_layers", "decoder_layers"), 2)
HEADS = ("num_attention_heads", "n_head", "encoder_attention_heads", "decoder_attention_heads")
OTHER_VALUES |= dict.fromkeys(HEADS, 4)
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop")
DROPOUTS += ("summary_first_dropout", "encoder_layerdrop", "decoder_layerdrop", "label_smoothing")
DROPOUTS += ("hidden_dropout_prob", "attention_probs_dropout_prob")
OTHER_VALUES |= dict.fromkeys(DROPOUTS, 0.25)


def other_values(side: Side, name: str, value: Any) -> list[Any]:
    """Values of a field other than its own: all there are, or one."""
    hint = next(cls.__annotations__[name] for cls in side.config_class.__mro__ if name in vars(cls)["__annotations__"])
    if get_origin(hint) is Literal:
        return [other for other in get_args(hint) if other != value]
    if hint is bool:
        return [not value]
    return ["gelu_10"] if name == "hidden_act" else [OTHER_VALUES[name]]


def sides() -> list[Any]:
    return [
        pytest.param(architecture, direction, name, id=f"{architecture.theirs.name}-{direction}-{name}")
        for architecture in ARCHITECTURES.values()
        for direction, side in (("to", architecture.ours), ("from", architecture.theirs))
        for name in side.fields
    ]


@pytest.mark.proof
@pytest.mark.parametrize(("architecture", "direction", "name"), sides())
def test_every_field_is_carried_over_or_refused(architecture: Architecture, direction: str, name: str):
    # One field at a time is set to another value. Where the conversion accepts it, both models compute the same.
    side = architecture.ours if direction == "to" else architecture.theirs
    base = (OURS if direction == "to" else THEIRS)[architecture.theirs.name]
    default = getattr(side.config_class(**base), name)
    translate = architecture.config_to_theirs if direction == "to" else architecture.config_to_ours
    convert = architecture.model_to_theirs if direction == "to" else architecture.model_to_ours
    for value in other_values(side, name, default):
        try:
            config = side.config_class(**base | {name: value})
        except StrictDataclassError:
            continue  # impossible in the original already
        refusal = None
        try:
            _, lost = translate(config)
        except InputError as error:
            refusal = str(error)
        if refusal is not None:
            assert f"{name} is {value!r}" in refusal
            continue
        assert lost.keys() <= side.incidental
        model = random_model(side, config)
        difference, scale = compare_logits(model, convert(model))
        assert difference <= TOLERANCE * scale


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("gpt2", {"norm_position": "post"}, "norm_position is 'post'; for gpt2 it must be 'pre': it normalises before"),
        ("gpt2", {"norm_position": "peri"}, "norm_position is 'peri'; for gpt2 it must be 'pre': it normalises before"),
        ("gpt2", {"norm_type": "rmsnorm"}, "norm_type is 'rmsnorm'; for gpt2 it must be 'layernorm': it has no other"),
        (
            "gpt2",
            {"position_embedding_type": "rope"},
            "position_embedding_type is 'rope'; for gpt2 it must be 'learned': it has no other positions",
        ),
        ("gpt2", {"head_dim": 10}, "head_dim is 10; for gpt2 it must be 8: its heads divide hidden_size"),
        ("gpt2", {"num_key_value_heads": 1}, "num_key_value_heads is 1; for gpt2 it must be 3: its heads do not share"),
        (
            "gpt2",
            {"gated_mlp": True},
            "gated_mlp is True; for gpt2 it must be False: its feed-forward layer has no gate",
        ),
        ("gpt2", {"use_bias": False}, "use_bias is False; for gpt2 it must be True: all its layers have biases"),
        ("gpt2", {"qk_norm": True}, "qk_norm is True; for gpt2 it must be False: its queries and keys are not norm"),
        (
            "gpt2",
            {"scale_embedding": True},
            "scale_embedding is True; for gpt2 it must be False: its embeddings are not",
        ),
        ("llama", {"attention_window": 8}, "attention_window is 8; for llama it must be None: its attention sees the"),
        (
            "llama",
            {"gated_mlp": False},
            "gated_mlp is False; for llama it must be True: its feed-forward layer is gated",
        ),
        (
            "llama",
            {"head_dim": 8, "num_attention_heads": 5},
            "llama cannot have this configuration: The hidden size (24)",
        ),
        ("bert", {"type_vocab_size": 0}, "type_vocab_size is 0; for bert it must be 1: every token has a segment"),
        (
            "bert",
            {"embedding_norm": False},
            "embedding_norm is False; for bert it must be True: its embeddings are norm",
        ),
        (
            "marian",
            {"norm_position": "pre"},
            "norm_position is 'pre'; for marian it must be 'post': it normalises after",
        ),
        ("marian", {"norm_eps": 1e-6}, "norm_eps is 1e-06; for marian it must be 1e-05: its code has no field for it"),
        (
            "marian",
            {"tie_word_embeddings": False},
            "tie_word_embeddings is False; for marian it must be True: with it off",
        ),
    ],
)
def test_what_another_architecture_cannot_express(name: str, fields: dict[str, Any], message: str):
    architecture = ARCHITECTURES[name]
    with pytest.raises(InputError) as refused:
        architecture.config_to_theirs(architecture.ours.config_class(**OURS[name] | fields))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (
            "gpt2",
            {"scale_attn_by_inverse_layer_idx": True},
            "scale_attn_by_inverse_layer_idx is True; for paperformer-lm it must be False: its scores are scaled alike",
        ),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True; for paperformer-lm it must be False"),
        (
            "gpt2",
            {"activation_function": "gelu_10"},
            "activation_function is 'gelu_10'; paperformer-lm knows relu, gelu, gelu_new, silu, sigmoid only",
        ),
        (
            "llama",
            {"attention_bias": True},
            "mlp_bias is False and attention_bias is True; for paperformer-lm they must be equal: its use_bias is for "
            "both",
        ),
        (
            "bert",
            {"is_decoder": True},
            "is_decoder is True; for paperformer-encoder it must be False: its encoder looks",
        ),
        (
            "bert",
            {"position_embedding_type": "relative_key"},
            "position_embedding_type is 'relative_key'; for paperformer-encoder it must be 'absolute'",
        ),
        (
            "marian",
            {"decoder_ffn_dim": 20},
            "decoder_ffn_dim is 20 and encoder_ffn_dim is 28; for paperformer-seq2seq they must be equal",
        ),
        (
            "marian",
            {"decoder_attention_heads": 4},
            "decoder_attention_heads is 4 and encoder_attention_heads is 3; for paperformer-seq2seq they must be equal",
        ),
        (
            "marian",
            {"decoder_vocab_size": 41},
            "decoder_vocab_size is 41; for paperformer-seq2seq it must be 37: its shared embedding has vocab_size rows",
        ),
        ("marian", {"normalize_before": True}, "normalize_before is True; for paperformer-seq2seq it must be False"),
        ("marian", {"pad_token_id": None}, "paperformer-seq2seq cannot have this configuration: "),
    ],
)
def test_what_paperformer_cannot_express(name: str, fields: dict[str, Any], message: str):
    architecture = ARCHITECTURES[name]
    with pytest.raises(InputError) as refused:
        architecture.config_to_ours(architecture.theirs.config_class(**THEIRS[name] | fields))
    assert message in str(refused.value)


@pytest.mark.parametrize(("their_name", "our_name"), [("swish", "silu"), ("gelu_pytorch_tanh", "gelu_new")])
def test_other_names_of_the_same_activation(their_name: str, our_name: str):
    config = MARIAN.theirs.config_class(**THEIRS["marian"] | {"activation_function": their_name})
    assert MARIAN.config_to_ours(config)[0].hidden_act == our_name
    model = random_model(MARIAN.theirs, config)
    difference, scale = compare_logits(MARIAN.model_to_ours(model), model)
    assert difference <= TOLERANCE * scale


def test_what_acts_in_training_only_is_carried_over_where_there_is_a_place_for_it():
    ours = GPT2.ours.config_class(**OURS["gpt2"], dropout=0.1, attention_dropout=0.2, activation_dropout=0.3)
    theirs, lost = GPT2.config_to_theirs(ours)
    assert (theirs.resid_pdrop, theirs.embd_pdrop, theirs.attn_pdrop) == (0.1, 0.1, 0.2)
    assert lost == {"activation_dropout": 0.3}
    ours, lost = GPT2.config_to_ours(GPT2.theirs.config_class(**THEIRS["gpt2"], resid_pdrop=0.1, embd_pdrop=0.2))
    assert ours.dropout == 0.1
    assert lost == {"embd_pdrop": 0.2}


def test_the_output_layer_has_a_bias_only_if_marian_s_is_not_zero():
    model = random_model(MARIAN.theirs, MARIAN.theirs.config_class(**THEIRS["marian"]))
    assert MARIAN.model_to_ours(model).lm_head.bias is None
    model.final_logits_bias[0, 3] = 0.5
    assert MARIAN.model_to_ours(model).lm_head.bias.nonzero().tolist() == [[3]]


def test_a_field_that_the_description_leaves_out_is_refused():
    # As would be a field that a later version adds, unless it has its default.
    without = tuple(pair for pair in GPT2.fields if pair[0] != "norm_eps")
    architecture = dataclasses.replace(GPT2, fields=without)
    config = GPT2.ours.config_class(**OURS["gpt2"])
    architecture.config_to_theirs(config)
    with pytest.raises(InputError, match=r"norm_eps is 0.1; gpt2 has no field for it, and would take 1e-05"):
        architecture.config_to_theirs(GPT2.ours.config_class(**OURS["gpt2"], norm_eps=0.1))


def test_a_weight_that_the_description_leaves_out_is_an_error():
    architecture = dataclasses.replace(LLAMA, weights=lambda config: list(LLAMA.weights(config))[1:])
    model = random_model(LLAMA.ours, LLAMA.ours.config_class(**OURS["llama"]))
    with pytest.raises(RuntimeError, match=r"llama does not fit its weights.*embed_tokens"):
        architecture.model_to_theirs(model)


def test_weights_that_need_no_change_are_not_copied():
    model = random_model(LLAMA.ours, LLAMA.ours.config_class(**OURS["llama"]))
    converted = LLAMA.model_to_theirs(model)
    assert converted.model.embed_tokens.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert converted.dtype == torch.float32
