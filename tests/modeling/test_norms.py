"""The normalisations against their formulas."""

import pytest
import torch

from paperformer import PaperformerLMConfig
from paperformer.modeling.norms import build_norm


def config(norm_type: str, *, use_bias: bool = True, norm_eps: float = 1e-5) -> PaperformerLMConfig:
    return PaperformerLMConfig(
        hidden_size=8, num_attention_heads=2, norm_type=norm_type, use_bias=use_bias, norm_eps=norm_eps
    )


@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_layernorm(eps):
    x, weight, bias = torch.randn(3, 5, 8), torch.randn(8), torch.randn(8)
    norm = build_norm(config("layernorm", norm_eps=eps))
    norm.load_state_dict({"weight": weight, "bias": bias})
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    torch.testing.assert_close(norm(x), (x - mean) / (variance + eps).sqrt() * weight + bias)


@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_rmsnorm(eps):
    x, weight = torch.randn(3, 5, 8), torch.randn(8)
    norm = build_norm(config("rmsnorm", norm_eps=eps))
    norm.load_state_dict({"weight": weight})
    torch.testing.assert_close(norm(x), x / ((x**2).mean(-1, keepdim=True) + eps).sqrt() * weight)


def test_layernorm_has_a_bias_only_where_layers_have_one():
    assert dict(build_norm(config("layernorm", use_bias=False)).named_parameters()).keys() == {"weight"}
    assert dict(build_norm(config("layernorm", use_bias=True)).named_parameters()).keys() == {"weight", "bias"}


@pytest.mark.parametrize("norm_type", ["layernorm", "rmsnorm"])
def test_a_new_norm_changes_scale_only(norm_type):
    norm = build_norm(config(norm_type))
    assert torch.equal(norm.weight, torch.ones(8))
    assert torch.equal(getattr(norm, "bias", torch.zeros(8)), torch.zeros(8))
