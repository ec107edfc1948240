"""The fast dropout drops the right share, independently, unbiased, reproducibly; elsewhere it is torch's."""

from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from paperformer.modeling.dropout import Dropout


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_drops_the_right_share_and_scales_the_rest(p, dtype):
    n = 1_000_000
    output = Dropout(p)(torch.ones(n, dtype=dtype))
    assert output.dtype == dtype
    share = float((output == 0).double().mean())
    deviation = (p * (1 - p) / n) ** 0.5
    assert abs(share - p) < 5 * deviation + 1 / 65536
    kept = output[output != 0].unique()
    torch.testing.assert_close(kept, torch.full((1,), 1 / (1 - p), dtype=dtype), rtol=1e-3, atol=0)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_neighbours_rows_and_calls_are_independent(p):
    n = 400_000
    layer = Dropout(p)
    mask, other_call = (layer(torch.ones(n)) != 0 for _ in range(2))
    pairs = [(mask[:-lag], mask[lag:]) for lag in (1, 2, 3, 4, 8, 128)]  # 1 to 3: lanes of one draw
    for left, right in [*pairs, (mask, other_call)]:
        both = float((left & right).double().mean())
        assert abs(both - (1 - p) ** 2) < 5 / n**0.5


def test_every_lane_drops_the_same_share():
    shares = (Dropout(0.2)(torch.ones(400_000)) == 0).view(-1, 4).double().mean(0)
    assert (shares - 0.2).abs().max() < 5 * (0.2 * 0.8 / 100_000) ** 0.5


@given(p=st.floats(0.01, 0.99))
def test_expected_output_is_the_input_for_any_p(p):
    n = 2**16
    mean = float(Dropout(p)(torch.ones(n, dtype=torch.float64)).mean())
    assert abs(mean - 1) < 6 * (p / (1 - p) / n) ** 0.5  # p / (1 - p): the variance of one element


@given(shape=st.lists(st.integers(0, 5), max_size=4))
def test_any_shape(shape):
    x = torch.ones(shape)
    assert Dropout(0.5)(x).shape == x.shape


def test_gradient_is_dropped_and_scaled_like_the_output():
    x = torch.randn(50, 7, requires_grad=True)
    output = Dropout(0.3)(x)
    output.sum().backward()
    torch.testing.assert_close(x * x.grad, output)
    assert 0 < (output == 0).sum() < x.numel()


def test_strided_input():
    x = torch.randn(6, 8).t()
    output = Dropout(0.5)(x)
    kept = output != 0
    torch.testing.assert_close(output[kept], 2 * x[kept])


def test_seed_reproduces_and_the_next_call_differs():
    layer, x = Dropout(0.5), torch.ones(1000)
    first, second = layer(x), layer(x)
    torch.manual_seed(0)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_drops_the_same_elements_again(use_reentrant):
    layer = nn.Sequential(nn.Linear(16, 16), Dropout(0.5), nn.Linear(16, 16))
    x = torch.randn(8, 16, requires_grad=True)

    def gradient(forward):
        torch.manual_seed(1)
        output = forward(x)
        torch.rand(10)  # the generator moves on before the block is computed again
        return torch.autograd.grad(output.square().sum(), list(layer.parameters()))

    if use_reentrant:  # it only works with .backward()
        layer.zero_grad()
        torch.manual_seed(1)
        checkpoint(layer, x, use_reentrant=True).square().sum().backward()
        recomputed = [parameter.grad for parameter in layer.parameters()]
    else:
        recomputed = gradient(lambda x: checkpoint(layer, x, use_reentrant=False))
    torch.testing.assert_close(list(recomputed), list(gradient(layer)))


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False)])
def test_does_nothing_when_off(p, training):
    x, state = torch.randn(10), torch.get_rng_state()
    assert torch.equal(Dropout(p).train(training)(x), x)
    assert torch.equal(torch.get_rng_state(), state)


def test_p_of_one_drops_everything():
    assert Dropout(1.0)(torch.ones(1_000_000)).count_nonzero() == 0


def test_in_place_is_honoured():
    x = torch.ones(1000)
    assert Dropout(0.5, inplace=True)(x) is x
    assert 400 < (x == 0).sum() < 600


def test_compiled_it_is_torch_dropout():
    x, ours, theirs = torch.ones(1000), Dropout(0.5), nn.Dropout(0.5)
    compiled = torch.compile(ours, backend="eager", fullgraph=True)
    torch.manual_seed(1)
    actual = compiled(x)
    torch.manual_seed(1)
    assert torch.equal(actual, theirs(x))


def test_subclasses_of_tensor_get_torch_dropout():
    class Recording(torch.Tensor):  # stands for sharded tensors, which do not mix with the mask's plain ones
        called: ClassVar[list] = []

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.called.append(function)
            return super().__torch_function__(function, types, args, kwargs)

    Dropout(0.5)(torch.ones(3).as_subclass(Recording))
    assert nn.functional.dropout in Recording.called


def test_on_another_device_it_is_torch_dropout():
    assert Dropout(0.5)(torch.ones(3, device="meta")).device.type == "meta"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_it_is_torch_dropout():
    x = torch.ones(1000, device="cuda")
    torch.manual_seed(0)
    ours = Dropout(0.5)(x)
    torch.manual_seed(0)
    assert torch.equal(ours, nn.Dropout(0.5)(x))
