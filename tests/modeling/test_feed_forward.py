"""The feed-forward sub-layer against its equations."""

import math

import pytest
import torch
from torch import Tensor

from paperformer import PaperformerLMConfig
from paperformer.modeling.dropout import Dropout
from paperformer.modeling.feed_forward import FeedForward

ACTIVATIONS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_new": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


def feed_forward(**options) -> FeedForward:
    torch.manual_seed(0)
    config = PaperformerLMConfig(hidden_size=8, intermediate_size=12, num_attention_heads=2, **options)
    return FeedForward(config)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_plain(name):
    """Vaswani et al. (2017), equation 2."""
    mlp, x = feed_forward(hidden_act=name, gated_mlp=False, use_bias=True), torch.randn(2, 3, 8)
    expected = ACTIVATIONS[name](x @ mlp.up_proj.weight.T + mlp.up_proj.bias) @ mlp.down_proj.weight.T
    torch.testing.assert_close(mlp(x), expected + mlp.down_proj.bias)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gated(name):
    """Shazeer (2020), equation 6."""
    mlp, x = feed_forward(hidden_act=name, gated_mlp=True, use_bias=False), torch.randn(2, 3, 8)
    gate, up, down = mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight
    torch.testing.assert_close(mlp(x), (ACTIVATIONS[name](x @ gate.T) * (x @ up.T)) @ down.T)
    assert sum(parameter.numel() for parameter in mlp.parameters()) == 3 * 8 * 12


@pytest.mark.parametrize("gated", [False, True])
def test_hidden_units_are_dropped_while_training(monkeypatch, gated):
    dropped: list[Tensor] = []
    mlp, x = feed_forward(gated_mlp=gated, activation_dropout=0.5), torch.randn(2, 3, 8)
    monkeypatch.setattr(Dropout, "forward", lambda self, inner: dropped.append(inner) or inner * 0)
    assert mlp(x).count_nonzero() == 0  # nothing but what went through dropout reaches the output
    assert [inner.shape for inner in dropped] == [(2, 3, 12)]
    assert mlp.dropout.p == 0.5
