"""Why scores are divided by sqrt(d_k), and what their softmax is (Vaswani et al. 2017, section 3.2.1)."""

import pytest
import torch
from torch import Tensor

from paperformer import PaperformerLMConfig
from paperformer.modeling.attention import MultiHeadAttention, eager_attention


def attention(head_dim: int, **options) -> MultiHeadAttention:
    """One head without positions or biases."""
    config = PaperformerLMConfig(
        num_attention_heads=1, head_dim=head_dim, position_embedding_type="none", use_bias=False, **options
    )
    return MultiHeadAttention(config, 0, is_causal=False).double().eval()


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@torch.no_grad()
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_worked_example(implementation):
    """Four tokens, d_k = 3: the first query's scores are 1, 0, 2, 1 over sqrt(3), that is 0.577, 0, 1.155, 0.577."""
    module = attention(3, hidden_size=9, attn_implementation=implementation)
    queries = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 0]])
    keys = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 5, 1]])
    values = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    # A token's nine numbers are its query, its key and its value, and each projection picks its own three.
    for projection, identity in zip((module.q_proj, module.k_proj, module.v_proj), torch.eye(9).split(3), strict=True):
        projection.weight.copy_(identity)
    module.o_proj.weight.copy_(torch.eye(9, 3))
    output, weights = module(torch.cat((queries, keys, values), dim=-1)[None].double())

    expected = torch.tensor([
        [0.230, 0.129, 0.410, 0.230],  # e^0.577, e^0, e^1.155, e^0.577 over their sum
        [0.046, 0.082, 0.046, 0.826],  # scores 0, 1, 0, 5
        [0.077, 0.077, 0.077, 0.770],  # scores 1, 1, 1, 5
        [0.250, 0.250, 0.250, 0.250],  # the zero query has no preference
    ]).double()  # fmt: skip
    torch.testing.assert_close(output[0, :, :3], expected[:, :3], atol=5e-4, rtol=0)  # the values are unit vectors
    assert output[0, :, 3:].count_nonzero() == 0
    if implementation == "eager":
        torch.testing.assert_close(weights[0, 0], expected, atol=5e-4, rtol=0)


@pytest.mark.parametrize("head_dim", [4, 16, 64])
def test_scores_have_variance_d_k_and_scaled_scores_variance_one(head_dim):
    """Of queries and keys with independent components of mean 0 and variance 1 (section 3.2.1, footnote 4).

    Of two keys, the logarithm of the ratio of the weights is the difference of their scores: twice the variance.
    """
    samples, module = 40_000, attention(head_dim)
    query, keys = normal(samples, 1, 1, head_dim), normal(samples, 1, 2, head_dim)
    # A sum of d products of normal variables has kurtosis 3 + 6/d, which gives the variance of its variance.
    standard_error = ((2 + 6 / head_dim) / samples) ** 0.5
    for scaling, variance in ((1.0, head_dim), (module.scaling, 1.0)):
        _, weights = eager_attention(module, query, keys, keys, attention_mask=None, scaling=scaling)
        differences = weights.log().diff().flatten()
        assert float(differences.var()) / 2 == pytest.approx(variance, rel=5 * standard_error)
        assert float(differences.mean()) == pytest.approx(0, abs=5 * (2 * variance / samples) ** 0.5)


def score_gradient(head_dim: int, scaling: float | None = None) -> float:
    """Median over queries of the norm of d(attended values)/d(scores); None: the module's own scaling."""
    module, samples = attention(head_dim), 500
    query, keys = normal(samples, 1, 1, head_dim), normal(samples, 1, 8, head_dim)
    values = torch.eye(8, dtype=torch.float64).expand(samples, 1, 8, 8)
    added = torch.zeros(samples, 1, 1, 8, dtype=torch.float64, requires_grad=True)  # its gradient is the scores' one
    output, _ = eager_attention(
        module, query, keys, values, attention_mask=added, scaling=module.scaling if scaling is None else scaling
    )
    columns = [torch.autograd.grad(output[..., i].sum(), added, retain_graph=True)[0] for i in range(8)]
    return float(torch.stack(columns).square().sum(dim=(0, 2, 3, 4)).sqrt().median())


def test_softmax_saturates_where_logits_grow():
    gradients = [score_gradient(16, scaling) for scaling in (0.25, 1.0, 4.0, 16.0)]
    assert gradients == sorted(gradients, reverse=True)
    assert gradients[-1] < 1e-6 * gradients[0]


def test_the_scale_keeps_the_softmax_of_wide_heads_from_saturating():
    """Unscaled, the gradient of wide heads all but vanishes; scaled, it is that of narrow ones."""
    assert score_gradient(1024, scaling=1.0) < 1e-2 * score_gradient(16)
    assert score_gradient(1024) == pytest.approx(score_gradient(16), rel=0.15)
