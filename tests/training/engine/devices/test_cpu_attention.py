"""Attention for half precision on a CPU, beside torch's own in float32."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from paperformer.training.console.input_error import InputError
from paperformer.training.engine.devices import cpu_attention
from paperformer.training.engine.devices.cpu_attention import fast_attention, sdpa_float32, use_fast_attention
from paperformer.training.recipe.optimization import Optimization

HEADS, GROUPS, WIDTH = 4, 2, 8


def make_inputs(length: int, source_length: int) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [(3, HEADS, length, WIDTH), (3, GROUPS, source_length, WIDTH), (3, GROUPS, source_length, WIDTH)]
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def attend(inputs: list[Tensor], mask: Tensor | None = None, *, is_causal: bool = False, **options) -> Tensor:
    module = SimpleNamespace(is_causal=is_causal, num_key_value_groups=HEADS // GROUPS, training=True)
    output, _ = sdpa_float32(module, *inputs, mask, scaling=WIDTH**-0.5, **options)
    return output


def padding(length: int, source_length: int) -> Tensor:
    """The last keys of each row are padding, one more in each."""
    seen = torch.arange(source_length) < torch.tensor([[source_length], [source_length - 1], [source_length - 2]])
    return seen[:, None, None, :].expand(-1, 1, length, -1)


@pytest.mark.parametrize("max_scores", [0, 10_000], ids=["fused", "step by step"])
@pytest.mark.parametrize(
    ("length", "source_length", "is_causal", "padded"),
    [(7, 7, False, False), (7, 7, True, False), (7, 7, True, True), (5, 9, False, True), (1, 9, True, False)],
)
def test_equals_torch(monkeypatch, max_scores, length, source_length, is_causal, padded):
    monkeypatch.setattr(cpu_attention, "MAX_SCORES", max_scores)
    inputs = make_inputs(length, source_length)
    mask = padding(length, source_length) if padded else None
    ours = attend(inputs, mask, is_causal=is_causal)
    causal = is_causal and mask is None and length > 1
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=mask, is_causal=causal, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn_like(ours)
    for our, their in zip(
        torch.autograd.grad((ours * weights).sum(), inputs),
        torch.autograd.grad((theirs * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(our, their)


def test_position_bias_is_added():
    inputs = make_inputs(6, 6)
    bias = torch.randn(1, HEADS, 6, 6)
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=bias, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(attend(inputs, position_bias=bias), theirs)


@pytest.mark.parametrize(
    ("dtype", "max_scores", "products"),
    [
        (torch.bfloat16, 6 * 6, torch.bfloat16),
        (torch.bfloat16, 6 * 6 - 1, torch.float32),
        (torch.float16, 6 * 6, torch.float32),
    ],
)
def test_only_short_sequences_in_bfloat16_leave_float32(monkeypatch, dtype, max_scores, products):
    monkeypatch.setattr(cpu_attention, "MAX_SCORES", max_scores)
    inputs = [x.detach().to(dtype) for x in make_inputs(6, 6)]
    with torch.autocast("cpu", dtype=dtype):
        assert attend(inputs).dtype == products


@pytest.mark.parametrize(
    ("length", "source_length", "is_causal", "padded"),
    [(7, 7, False, False), (7, 7, True, False), (7, 7, True, True), (5, 9, False, True), (1, 9, True, False)],
)
def test_fast_attention_is_torchs(monkeypatch, length, source_length, is_causal, padded):
    monkeypatch.setattr(cpu_attention, "Dropout", lambda p: lambda weights: weights)
    inputs = make_inputs(length, source_length)
    mask = padding(length, source_length) if padded else None
    module = SimpleNamespace(is_causal=is_causal, num_key_value_groups=HEADS // GROUPS, training=True)
    ours, _ = fast_attention(module, *inputs, mask, scaling=0.3, dropout=0.1)
    causal = is_causal and mask is None and length > 1
    options = {"attn_mask": mask, "is_causal": causal, "enable_gqa": True, "scale": 0.3}
    theirs = F.scaled_dot_product_attention(*inputs, **options).transpose(1, 2)
    torch.testing.assert_close(ours, theirs)
    direction = torch.randn_like(ours)
    for our, their in zip(
        torch.autograd.grad((ours * direction).sum(), inputs),
        torch.autograd.grad((theirs * direction).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(our, their)


@pytest.mark.parametrize("bf16", [False, True])
def test_fast_attention_drops_weights_and_scales_the_others(bf16):
    length = 64
    query, key = (torch.randn(2, HEADS, length, WIDTH) for _ in range(2))
    value = torch.eye(length).expand(2, HEADS, -1, -1)  # so that the output is the weights
    module = SimpleNamespace(is_causal=False, num_key_value_groups=1, training=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        found, _ = fast_attention(module, query, key, value, None, scaling=1.0, dropout=0.25)
    expected = (query @ key.transpose(2, 3)).softmax(-1).transpose(1, 2) / 0.75  # (B, T, H, S)
    kept = found != 0
    assert found.dtype == (torch.bfloat16 if bf16 else torch.float32)
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.01)
    torch.testing.assert_close(found.float()[kept], expected[kept], rtol=0.1 if bf16 else 1e-5, atol=1e-6)


@pytest.mark.parametrize("bf16", [False, True])
def test_fast_attention_leaves_evaluation_and_biases_as_they_are(bf16):
    inputs, bias = make_inputs(6, 6), torch.randn(1, HEADS, 6, 6)
    usual = sdpa_float32 if bf16 else cpu_attention.sdpa_attention_forward
    for training, options in ((False, {"dropout": 0.3}), (True, {"dropout": 0.3, "position_bias": bias})):
        module = SimpleNamespace(is_causal=True, num_key_value_groups=HEADS // GROUPS, training=training)
        outputs = []
        for attend in (fast_attention, usual):
            torch.manual_seed(1)
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                outputs.append(attend(module, *inputs, None, scaling=0.3, **options)[0])
        assert torch.equal(*outputs)


@pytest.mark.parametrize("is_wanted", [False, True])
def test_a_run_trains_with_fast_attention_if_told_to(lm_recipe, train, is_wanted, monkeypatch):
    calls = []

    def watch(*args, **kwargs):
        calls.append(kwargs["dropout"])
        return fast_attention(*args, **kwargs)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, cpu_attention.FAST, watch)
    options = {"optimization__fast_attention": is_wanted, "model__attention_dropout": 0.2, "optimization__max_steps": 1}
    train(lm_recipe(**options))
    assert (0.2 in calls) == is_wanted


def test_fast_attention_is_for_cpus():
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation="sdpa"))
    with pytest.raises(InputError, match="fast_attention is true and the device is cuda; there it must be false"):
        use_fast_attention(model, torch.device("cuda"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mixed_precision": "fp16"},
            "fast_attention is true and mixed_precision fp16; with it that must be no or bf16",
        ),
        ({"compile": True}, "fast_attention is true and so is compile"),
    ],
)
def test_what_does_not_go_with_fast_attention(options, message):
    with pytest.raises(ValueError, match=message):
        Optimization(fast_attention=True, **options)
