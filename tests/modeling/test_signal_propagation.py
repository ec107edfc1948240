"""What the norms do to the scale of states and gradients at initialisation.

The measurement is that of docs/gradient_flow.md; what is asserted is what the papers derive, with margins for width 64
and a few seeds.
"""

import functools
import runpy
from pathlib import Path

import pytest
import torch

from paperformer import PaperformerLMConfig
from paperformer.modeling.blocks import TransformerBlock
from paperformer.modeling.norms import build_norm

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "gradient_flow.py"))
NORM_POSITIONS = ["post", "pre", "peri"]
SHALLOW, DEEP = 12, 48


@functools.cache
def flow(norm_position: str, layers: int, weight_scale: float = 1.0):
    """Medians over seeds: a gradient norm for each block, and the variances before the first and after each."""
    setting = BENCHMARK["Setting"](layers, weight_scale)
    return BENCHMARK["summarise"]([BENCHMARK["measure"](norm_position, setting, seed) for seed in range(5)])


def norm(norm_type: str, hidden_size: int = 64) -> torch.nn.Module:
    config = PaperformerLMConfig(hidden_size=hidden_size, num_attention_heads=2, norm_type=norm_type, norm_eps=1e-12)
    return build_norm(config).double()


def test_layernorm_gives_mean_zero_and_variance_one_whatever_scale_and_shift_come_in():
    layernorm, x = norm("layernorm"), torch.randn(5, 64, dtype=torch.float64)
    output = layernorm(3 * x + 7)
    torch.testing.assert_close(output.mean(-1), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(output.var(-1, correction=0), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(output, layernorm(x))


def test_rmsnorm_gives_mean_square_one_whatever_scale_but_not_whatever_shift_comes_in():
    rmsnorm, x = norm("rmsnorm"), torch.randn(5, 64, dtype=torch.float64)
    torch.testing.assert_close(rmsnorm(x).square().mean(-1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(rmsnorm(3 * x), rmsnorm(x))
    assert (rmsnorm(x + 7) - rmsnorm(x)).abs().max() > 0.5


@pytest.mark.parametrize("norm_type", ["layernorm", "rmsnorm"])
def test_the_gradient_through_a_norm_is_orthogonal_to_its_input_and_inverse_to_its_scale(norm_type):
    """Because the output does not change along the input: this is what tames the gradients of large states."""
    module, x = norm(norm_type), torch.randn(5, 64, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(5, 64, dtype=torch.float64)

    def gradient(scale: float) -> torch.Tensor:
        states = (scale * x).detach().requires_grad_()
        return torch.autograd.grad((module(states) * direction).sum(), states)[0]

    torch.testing.assert_close((gradient(1.0) * x).sum(-1), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(gradient(4.0), gradient(1.0) / 4)


@pytest.mark.parametrize("layers", [SHALLOW, DEEP])
def test_post_norm_keeps_the_variance_at_one(layers):
    assert flow("post", layers).variances[1:] == pytest.approx([1] * layers, abs=1e-3)


@pytest.mark.parametrize("layers", [SHALLOW, DEEP])
def test_pre_norm_adds_between_a_half_and_three_halves_a_block(layers):
    """Xiong et al. (2020), lemma 2: the feed-forward adds 1/2, attention from 0 (an average of many values) to 1."""
    for block, variance in enumerate(flow("pre", layers).variances):
        assert 0.9 * (1 + block / 2) < variance < 1.1 * (1 + 3 * block / 2)


@pytest.mark.parametrize("layers", [SHALLOW, DEEP])
def test_peri_norm_adds_two_a_block(layers):
    """Each of its two sub-layers ends in a norm, so what it adds has variance 1."""
    assert flow("peri", layers).variances == pytest.approx([1 + 2 * block for block in range(layers + 1)], rel=0.2)


def test_variance_grows_with_the_weights_in_pre_norm_only():
    """By their fourth power, as a sub-layer multiplies by two matrices (Kim et al. 2025 on pre- and peri-norm)."""
    growth = {n: flow(n, SHALLOW, 2.0).variances[-1] / flow(n, SHALLOW).variances[-1] for n in NORM_POSITIONS}
    assert growth["pre"] == pytest.approx(2**4, rel=0.25)
    assert growth["peri"] == pytest.approx(1, rel=0.1)
    assert growth["post"] == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("norm_position", ["pre", "peri"])
def test_the_gradient_of_the_last_block_falls_as_the_final_norm_divides(norm_position):
    """Like 1/sqrt(N) for N blocks (Xiong et al. 2020, theorem 1, for pre-norm)."""
    shallow, deep = flow(norm_position, SHALLOW), flow(norm_position, DEEP)
    ratio = deep.gradient_norms[-1] / shallow.gradient_norms[-1]
    assert ratio == pytest.approx((SHALLOW / DEEP) ** 0.5, rel=0.3)
    assert ratio == pytest.approx((shallow.variances[-1] / deep.variances[-1]) ** 0.5, rel=0.25)


def test_the_gradient_of_the_last_block_does_not_fall_with_depth_in_post_norm():
    """Xiong et al. (2020), theorem 1."""
    last = {(n, layers): flow(n, layers).gradient_norms[-1] for n in NORM_POSITIONS for layers in (SHALLOW, DEEP)}
    assert 0.7 < last["post", DEEP] / last["post", SHALLOW] < 1.5
    for norm_position in ("pre", "peri"):
        assert last["post", SHALLOW] > 2 * last[norm_position, SHALLOW]
        assert last["post", DEEP] > 4 * last[norm_position, DEEP]


@pytest.mark.parametrize("norm_position", ["pre", "peri"])
def test_gradient_times_standard_deviation_is_the_same_in_every_block(norm_position):
    """The norm before a sub-layer divides by the standard deviation of the stream, forwards and backwards."""
    gradients, variances = flow(norm_position, DEEP)
    products = [gradient * variance**0.5 for gradient, variance in zip(gradients, variances[1:], strict=True)]
    assert max(products) < 2 * min(products)
    assert gradients[0] > 4 * gradients[-1]


def last_gradient(norm_position: str, scale: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A block's output, its second feed-forward matrix times `scale`, and the gradient of that matrix."""
    torch.manual_seed(0)
    config = PaperformerLMConfig(
        hidden_size=32, intermediate_size=48, num_attention_heads=2, norm_position=norm_position, norm_eps=1e-12
    )
    block = TransformerBlock(config, 0, is_causal=False).double()
    weight = block.mlp.down_proj.weight
    weight.data.mul_(scale)
    output = block(torch.randn(2, 5, 32, dtype=torch.float64))
    (output * torch.randn_like(output)).sum().backward()
    return output.detach(), weight.detach(), weight.grad


def test_in_peri_norm_the_scale_of_the_last_matrix_changes_nothing_but_its_gradient():
    """The norm of the sub-layer's output cancels the scale c; the gradient is orthogonal to the weights, and 1/c."""
    output, weight, gradient = last_gradient("peri", 1.0)
    scaled_output, _, scaled_gradient = last_gradient("peri", 8.0)
    torch.testing.assert_close(scaled_output, output)
    torch.testing.assert_close(scaled_gradient, gradient / 8)
    assert abs((gradient * weight).sum()) < 1e-9 * gradient.norm() * weight.norm()


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_in_post_and_pre_norm_the_scale_of_the_last_matrix_matters(norm_position):
    output, weight, gradient = last_gradient(norm_position, 1.0)
    assert (last_gradient(norm_position, 8.0)[0] - output).abs().max() > 0.1
    assert abs((gradient * weight).sum()) > 1e-3 * gradient.norm() * weight.norm()
