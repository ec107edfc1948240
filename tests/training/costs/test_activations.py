from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from paperformer import PaperformerLMConfig
from paperformer.modeling.families import Config
from paperformer.training.costs.activations import activation_bytes

from .conftest import FAMILIES, make_model, tiny, training_inputs


def saved_bytes(model: PreTrainedModel, tensors: dict[str, torch.Tensor], *, autocast: bool = False) -> int:
    """What autograd saves in a forward pass, each storage once, without the parameters."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in parameters:
            saved[address] = tensor  # holds the storage, so that its address is not given to another
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        model(**tensors, return_logits=False)
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


ACTIVATION_OPTIONS: dict[str, dict[str, Any]] = {
    "gpt2": {"norm_position": "pre", "hidden_act": "gelu_new", "position_embedding_type": "learned"},
    "llama": {
        "norm_type": "rmsnorm",
        "norm_position": "pre",
        "hidden_act": "silu",
        "gated_mlp": True,
        "use_bias": False,
        "position_embedding_type": "rope",
        "dropout": 0.0,
    },
    "vaswani": {"norm_position": "post", "activation_dropout": 0.1, "embedding_norm": True},
    "grouped": {"norm_position": "peri", "qk_norm": True, "num_key_value_heads": 2, "hidden_act": "gelu"},
    "alibi": {"position_embedding_type": "alibi"},
    "relative": {"position_embedding_type": "relative"},
    "linear": {"position_embedding_type": "none", "linear_attention": True},
}


def enable_checkpointing(model: PreTrainedModel) -> None:
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)


def padded(ids: torch.Tensor) -> torch.Tensor:
    mask = torch.ones_like(ids)
    mask[0, -1] = 0
    return mask


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("options", "attention"),
    [
        ("vaswani", "sdpa"),
        ("grouped", "eager"),
        *(pytest.param(name, "sdpa", marks=pytest.mark.proof) for name in ACTIVATION_OPTIONS if name != "vaswani"),
        *(pytest.param(name, "eager", marks=pytest.mark.proof) for name in ("vaswani", "relative")),
    ],
)
def test_activations(family: type[Config], options: str, attention: Any) -> None:
    batch, length = 3, 48
    more = {"attention_dropout": 0.1} if attention == "eager" else {}  # fused attention for CPUs drops nothing
    config = tiny(family, 2, **{"gated_mlp": False} | ACTIVATION_OPTIONS[options] | more)
    source_length = 40 if config.is_encoder_decoder else 0
    tensors = training_inputs(config, batch, length, source_length)
    if family is not PaperformerLMConfig:  # whose batches are full of text
        tensors["attention_mask"] = padded(tensors["input_ids"])
    model = make_model(config).train()
    if attention == "eager":
        model.set_attn_implementation("eager")
    for checkpointing in (False, True):
        if checkpointing:
            enable_checkpointing(model)
        for precision in ("fp32", "bf16"):
            memory = activation_bytes(
                config,
                batch,
                length,
                source_length,
                precision=precision,
                attention=attention,
                gradient_checkpointing=checkpointing,
                fused=False,
            )
            counted = saved_bytes(model, tensors, autocast=precision != "fp32")
            assert memory.kept == pytest.approx(counted, rel=0.02)
            assert (memory.recomputed > 0) == checkpointing


@pytest.mark.parametrize("family", FAMILIES)
def test_one_block_is_recomputed(family: type[Config]) -> None:
    def saved(num_layers: int) -> int:
        config = tiny(family, num_layers, norm_position="post")
        tensors = training_inputs(config, 3, 48, 40)
        if family is not PaperformerLMConfig:
            tensors["attention_mask"] = padded(tensors["input_ids"])
        return saved_bytes(make_model(config).train(), tensors)

    config = tiny(family, norm_position="post")
    memory = activation_bytes(config, 3, 48, 40, gradient_checkpointing=True, fused=False)
    inputs = 4 * config.hidden_size * 3 * 48  # a block saves its own too, which is kept all the time
    assert memory.recomputed == pytest.approx(saved(3) - saved(2) - inputs, rel=0.01)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_block_on_a_gpu(precision: Any, norm: str) -> None:
    """Derived by hand for GPT-2, with either norm: what tests on a CPU cannot count."""
    width, inner, heads, tokens = 64, 192, 4, 3 * 48
    options = ACTIVATION_OPTIONS["gpt2"] | {"gated_mlp": False, "norm_type": norm}
    three, two = (activation_bytes(tiny(PaperformerLMConfig, n, **options), 3, 48, precision=precision) for n in (3, 2))
    size, readers, copies = (4, 1, 0) if precision == "fp32" else (2, 3, 2)  # autocast copies what is read and weights
    norms_and_dropout = 2 * (4 * width + 8) + 2 * width
    attention = size * width * readers + 4 * size * width + 4 * heads
    feed_forward = size * width + 2 * size * inner
    expected = tokens * (norms_and_dropout + attention + feed_forward) + copies * (4 * width**2 + 2 * width * inner)
    assert three.kept - two.kept == pytest.approx(expected, rel=1e-3)


def test_what_changes_activations() -> None:
    """Fused operations save less, as do fewer heads that queries share; only scores are quadratic in T."""
    config = tiny(PaperformerLMConfig, norm_type="rmsnorm")
    kept = activation_bytes(config, 1, 64).kept
    assert kept < activation_bytes(config, 1, 64, fused=False).kept
    assert kept > activation_bytes(tiny(PaperformerLMConfig, norm_type="rmsnorm", num_key_value_heads=2), 1, 64).kept
    dropping = tiny(PaperformerLMConfig, norm_type="rmsnorm", attention_dropout=0.1)
    assert activation_bytes(dropping, 1, 64).kept == kept  # in the kernel, which draws its mask again

    def growth(config: Config, attention: Any) -> int:
        kept = [activation_bytes(config, 1, length, attention=attention).kept for length in (64, 128, 192)]
        return kept[2] - 2 * kept[1] + kept[0]

    assert growth(config, "sdpa") == 0
    # layers, float32, heads, second difference
    assert growth(config, "eager") == 2 * 4 * config.num_attention_heads * 2 * 64**2
    alibi = tiny(PaperformerLMConfig, norm_type="rmsnorm", position_embedding_type="alibi")
    assert growth(alibi, "sdpa") > 0
