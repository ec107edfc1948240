"""The chunked loss against torch's own: the same value, the same gradients, and never the full logits."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paperformer.modeling.loss import linear_cross_entropy

from ..examples import examples

IGNORE = -100


def make_inputs(
    num_tokens: int, vocab_size: int, hidden_size: int = 8, *, dtype=torch.float64, ignored=0.0, bias=False
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Hidden states, weight, labels of which a share is ignored, and a bias or None; always the same ones."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    labels = torch.randint(vocab_size, (num_tokens,), generator=generator)
    labels[torch.rand(num_tokens, generator=generator) < ignored] = IGNORE
    return (
        normal(num_tokens, hidden_size),
        normal(vocab_size, hidden_size),
        labels,
        normal(vocab_size) if bias else None,
    )


def plain(hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None, **options) -> Tensor:
    """What is to be reproduced."""
    return F.cross_entropy(F.linear(hidden, weight, bias), labels, **options)


def gradients(loss: Tensor, *inputs: Tensor | None) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [x for x in inputs if x is not None]))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("ignored", [0.0, 0.4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_equals_torch_in_value_and_gradients(bias, label_smoothing, ignored, dtype, tolerance):
    hidden, weight, labels, b = make_inputs(50, 23, dtype=dtype, ignored=ignored, bias=bias)
    ours = linear_cross_entropy(hidden, weight, labels, bias=b, label_smoothing=label_smoothing, chunk_size=7)
    theirs = plain(hidden, weight, labels, b, label_smoothing=label_smoothing)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(
        gradients(ours, hidden, weight, b),
        gradients(theirs, hidden, weight, b),
        rtol=tolerance,
        atol=tolerance,
    )


@settings(max_examples=examples(60))
@given(
    num_tokens=st.integers(1, 40),
    vocab_size=st.integers(1, 30),
    chunk_size=st.integers(1, 50),
    ignored=st.sampled_from([0.0, 0.3, 0.9]),
    label_smoothing=st.sampled_from([0.0, 0.1]),
)
def test_any_split_into_chunks_gives_the_same(num_tokens, vocab_size, chunk_size, ignored, label_smoothing):
    hidden, weight, labels, bias = make_inputs(num_tokens, vocab_size, ignored=ignored, bias=True)
    options = {"bias": bias, "label_smoothing": label_smoothing}
    ours = linear_cross_entropy(hidden, weight, labels, **options, chunk_size=chunk_size)
    total = plain(hidden, weight, labels, **options, reduction="sum")
    theirs = total / max(1, int((labels != IGNORE).sum()))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradients(ours, hidden, weight, bias), gradients(theirs, hidden, weight, bias))


def test_gradcheck():
    hidden, weight, labels, bias = make_inputs(9, 7, hidden_size=3, ignored=0.3, bias=True)

    def loss(hidden, weight, bias):
        return linear_cross_entropy(hidden, weight, labels, bias=bias, label_smoothing=0.1, chunk_size=4)

    assert torch.autograd.gradcheck(loss, (hidden, weight, bias))


def test_leading_dimensions_and_strides_do_not_matter():
    hidden, weight, labels, _ = make_inputs(24, 11)
    expected = linear_cross_entropy(hidden, weight, labels)
    transposed = hidden.view(4, 6, 8).transpose(0, 1)  # not contiguous
    actual = linear_cross_entropy(transposed, weight, labels.view(4, 6).t())
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, hidden), gradients(expected, hidden))


@pytest.mark.parametrize("num_items", [100, torch.tensor(100)])
def test_num_items_in_batch_replaces_the_count(num_items):
    hidden, weight, labels, _ = make_inputs(20, 11, ignored=0.5)
    ours = linear_cross_entropy(hidden, weight, labels, num_items_in_batch=num_items)
    theirs = plain(hidden, weight, labels, reduction="sum") / 100
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradients(ours, hidden, weight), gradients(theirs, hidden, weight))


def test_micro_batches_add_up_to_the_whole_batch():
    hidden, weight, labels, _ = make_inputs(30, 11, ignored=0.5)
    num_items = int((labels != IGNORE).sum())
    whole = linear_cross_entropy(hidden, weight, labels)
    parts = [
        linear_cross_entropy(hidden[rows], weight, labels[rows], num_items_in_batch=num_items)
        for rows in (slice(0, 4), slice(4, 30))
    ]
    torch.testing.assert_close(sum(parts), whole)
    torch.testing.assert_close(gradients(sum(parts), weight), gradients(whole, weight))


@pytest.mark.parametrize("num_items", [None, 5])
def test_no_label_that_counts_gives_zero_and_zero_gradients(num_items):
    hidden, weight, _, _ = make_inputs(6, 11)
    labels = torch.full((6,), IGNORE)
    loss = linear_cross_entropy(hidden, weight, labels, label_smoothing=0.1, num_items_in_batch=num_items)
    assert loss.item() == 0
    assert all(g.count_nonzero() == 0 for g in gradients(loss, hidden, weight))


def test_logits_far_from_zero_neither_overflow_nor_vanish():
    hidden, weight, labels, _ = make_inputs(20, 11, dtype=torch.float32)
    hidden = (hidden.detach() * 200).requires_grad_()  # logits of several hundreds; exp(89) is infinite already
    ours, theirs = linear_cross_entropy(hidden, weight, labels), plain(hidden, weight, labels)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradients(ours, hidden, weight), gradients(theirs, hidden, weight))


def relative_error(actual: Tensor, exact: Tensor) -> float:
    return float((actual.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("mode", ["bfloat16", "float16", "bfloat16 autocast"])
def test_half_precision_is_as_close_to_the_truth_as_torch(mode):
    dtype = torch.float32 if "autocast" in mode else getattr(torch, mode)
    hidden, weight, labels, _ = make_inputs(300, 50, hidden_size=32, dtype=dtype, ignored=0.2)
    truth = plain(hidden.double(), weight.double(), labels, label_smoothing=0.1)
    exact = gradients(truth, hidden, weight)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled="autocast" in mode):
        theirs = plain(hidden, weight, labels, label_smoothing=0.1)
        ours = linear_cross_entropy(hidden, weight, labels, label_smoothing=0.1, chunk_size=64)
    assert ours.dtype == torch.float32
    assert relative_error(ours.detach(), truth.detach()) < 2e-3
    ours, theirs = gradients(ours, hidden, weight), gradients(theirs, hidden, weight)
    for our, their, reference in zip(ours, theirs, exact, strict=True):
        assert our.dtype == dtype
        assert relative_error(our, reference) < max(1e-3, 1.2 * relative_error(their, reference))


def test_under_autocast_the_products_run_in_its_type():
    hidden, weight, labels, _ = make_inputs(30, 11, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast = linear_cross_entropy(hidden, weight, labels)
    assert autocast == linear_cross_entropy(hidden.bfloat16(), weight.bfloat16(), labels)
    assert autocast != linear_cross_entropy(hidden, weight, labels)


def test_many_chunks_do_not_lose_the_gradient_in_bfloat16():
    # A bfloat16 sum of many equal terms stops growing at 256 times a term; a float32 sum does not.
    hidden = torch.ones(2048, 1, dtype=torch.bfloat16)
    weight = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    loss = linear_cross_entropy(hidden, weight, torch.zeros(2048, dtype=torch.long), chunk_size=1)
    assert gradients(loss, weight)[0].flatten().tolist() == [-0.5, 0.5]


class Recorder(TorchDispatchMode):
    """Keeps the size of the largest tensor any operation returns, and counts matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.products = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [x.numel() for x in tree_leaves(result) if isinstance(x, Tensor)]
        self.largest = max([self.largest, *sizes])
        self.products += function.overloadpacket in (
            torch.ops.aten.mm,
            torch.ops.aten.addmm,
            torch.ops.aten.addmm_,
        )
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_never_holds_the_full_logits(dtype):
    num_tokens, vocab_size, chunk_size = 1000, 900, 50
    hidden, weight, labels, _ = make_inputs(num_tokens, vocab_size, dtype=dtype)
    with Recorder() as recorder:
        linear_cross_entropy(hidden, weight, labels, label_smoothing=0.1, chunk_size=chunk_size).backward()
    assert recorder.largest == chunk_size * vocab_size


def test_the_default_chunk_is_small():
    hidden, weight, labels, _ = make_inputs(4096, 4000, dtype=torch.float32)
    with Recorder() as recorder:
        linear_cross_entropy(hidden, weight, labels).backward()
    assert recorder.largest <= 2**22 < hidden.shape[0] * weight.shape[0] / 3


@pytest.mark.parametrize("frozen", ["everything", "weight", "hidden"])
def test_computes_no_gradient_that_nobody_asks_for(frozen):
    hidden, weight, labels, _ = make_inputs(20, 11)
    expected = plain(hidden, weight, labels)
    hidden.requires_grad_(frozen != "hidden")
    weight.requires_grad_(frozen != "weight")
    with torch.set_grad_enabled(frozen != "everything"), Recorder() as recorder:
        loss = linear_cross_entropy(hidden, weight, labels, chunk_size=5)
    torch.testing.assert_close(loss, expected)
    assert loss.requires_grad == (frozen != "everything")
    assert recorder.products == 4 * (1 if frozen == "everything" else 2)  # one a chunk for the logits, one a gradient


def test_padding_costs_nothing():
    hidden, weight, labels, _ = make_inputs(100, 11)
    labels[10:] = IGNORE
    with Recorder() as recorder:
        loss = linear_cross_entropy(hidden, weight, labels, chunk_size=10)
    assert recorder.products == 3  # one chunk: logits and two gradients
    assert gradients(loss, hidden)[0][10:].count_nonzero() == 0


def test_backward_twice_gives_the_same_gradient():
    hidden, weight, labels, _ = make_inputs(20, 11)
    loss = 3 * linear_cross_entropy(hidden, weight, labels)
    first = torch.autograd.grad(loss, (hidden, weight), retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(loss, (hidden, weight))))
    torch.testing.assert_close(list(first), gradients(3 * plain(hidden, weight, labels), hidden, weight))


def test_a_second_derivative_is_refused():
    hidden, weight, labels, _ = make_inputs(5, 7)
    loss = linear_cross_entropy(hidden, weight, labels)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, hidden, create_graph=True)


@pytest.mark.parametrize("label", [11, -1])
def test_a_label_outside_the_vocabulary_is_refused(label):
    hidden, weight, labels, _ = make_inputs(5, 11)
    labels[3] = label
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        linear_cross_entropy(hidden, weight, labels)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_torch_on_cuda(dtype):
    hidden, weight, labels, bias = (
        x.detach().cuda().requires_grad_(x.is_floating_point())
        for x in make_inputs(500, 300, dtype=dtype, ignored=0.3, bias=True)
    )
    ours = linear_cross_entropy(hidden, weight, labels, bias=bias, label_smoothing=0.1, chunk_size=64)
    theirs = plain(hidden.float(), weight.float(), labels, bias.float(), label_smoothing=0.1)
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    ours, theirs = gradients(ours, hidden, weight, bias), gradients(theirs, hidden, weight, bias)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our.float(), their.float(), rtol=tolerance, atol=tolerance)
