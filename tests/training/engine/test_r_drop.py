from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Categorical, kl_divergence
from torch.nn.parallel import DistributedDataParallel

from paperformer import (
    PaperformerEncoderConfig,
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerForMaskedLM,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)
from paperformer.training.engine import r_drop
from paperformer.training.engine.r_drop import r_drop_loss
from paperformer.training.evaluation.perplexity import count_labels

TINY: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "initialization": "normal",
    "initializer_range": 0.5,
    "label_smoothing": 0.1,
}
Batch = dict[str, torch.Tensor]


def make_seq2seq(**options: Any) -> tuple[nn.Module, Batch]:
    torch.manual_seed(0)
    config = PaperformerSeq2SeqConfig(**TINY, encoder_layers=1, decoder_layers=1, pad_token_id=0, **options)
    labels = torch.randint(1, 20, (4, 6))
    labels[0, 4:] = labels[3, 2:] = -100
    mask = torch.ones(4, 7, dtype=torch.long)
    mask[1, 5:] = 0
    batch = {"input_ids": torch.randint(1, 20, (4, 7)), "attention_mask": mask, "labels": labels}
    return PaperformerForConditionalGeneration(config).double().train(), batch


def make_lm(**options: Any) -> tuple[nn.Module, Batch]:
    torch.manual_seed(0)
    ids = torch.randint(1, 20, (4, 6))
    labels = ids.clone()
    labels[0, 4:] = labels[3, 1:3] = -100
    model = PaperformerForCausalLM(PaperformerLMConfig(**TINY, num_hidden_layers=1, **options))
    return model.double().train(), {"input_ids": ids, "labels": labels}


def make_encoder(**options: Any) -> tuple[nn.Module, Batch]:
    torch.manual_seed(0)
    labels = torch.full((4, 6), -100)
    labels[0, 0] = labels[1, 3] = labels[2, 0] = labels[3, 2] = 7  # the first position counts
    model = PaperformerForMaskedLM(
        PaperformerEncoderConfig(**TINY, num_hidden_layers=1, attention_dropout=0.0, **options)
    )
    return model.double().train(), {"input_ids": torch.randint(1, 20, (4, 6)), "labels": labels}


MAKERS = [make_seq2seq, make_lm, make_encoder]
Maker = Callable[..., tuple[nn.Module, Batch]]


def num_labels(model: nn.Module, batch: Batch) -> torch.Tensor:
    return torch.tensor(count_labels(model, batch))


def sum_of_losses(logits: torch.Tensor, labels: torch.Tensor, alpha: float, smoothing: float) -> torch.Tensor:
    """The paper's formula by torch.distributions and torch's own cross-entropy; logits of two passes, (2, N, V)."""
    losses = torch.stack(
        [F.cross_entropy(each, labels, label_smoothing=smoothing, reduction="none") for each in logits]
    )
    first, second = (Categorical(logits=each) for each in logits)
    divergences = kl_divergence(first, second) + kl_divergence(second, first)
    return losses.sum() / 2 + alpha / 2 * (divergences * (labels != -100)).sum() / 2


@given(
    st.integers(2, 5).flatmap(
        lambda size: st.lists(
            st.tuples(st.lists(st.floats(-20, 20), min_size=2 * size, max_size=2 * size), st.integers(-1, size - 1)),
            min_size=1,
            max_size=8,
        )
    ),
    st.floats(0, 10),
    st.floats(0, 0.5),
    st.integers(1, 20),
)
def test_the_loss_is_that_of_torch_distributions_however_it_is_cut(
    tokens: list[tuple[list[float], int]], alpha: float, smoothing: float, chunk: int
) -> None:
    rows = torch.tensor([row for row, _ in tokens], dtype=torch.float64).unflatten(1, (2, -1)).transpose(0, 1)
    labels = torch.tensor([-100 if label < 0 else label for _, label in tokens])
    reference = rows.clone().requires_grad_()
    expected = sum_of_losses(reference, labels, alpha, smoothing)
    expected.backward()  # type: ignore[no-untyped-call]
    leaf = rows.flatten(0, 1).requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(r_drop, "CPU_CHUNK_LOGITS", chunk)
        actual = r_drop._RDropSum.apply(leaf.clone(), labels, alpha, smoothing)
    actual.backward()
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(leaf.grad.view_as(reference), reference.grad, rtol=1e-9, atol=1e-9)


def test_the_loss_of_bfloat16_logits_is_computed_in_float32() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(100, 20).bfloat16(), torch.randint(0, 20, (50,))
    narrow = r_drop._RDropSum.apply(logits.clone(), labels, 5.0, 0.1)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, sum_of_losses(logits.float().unflatten(0, (2, 50)), labels, 5.0, 0.1))


def test_there_is_no_second_derivative_and_that_is_said() -> None:
    model, batch = make_lm(dropout=0.3)
    loss = r_drop_loss(model, batch, 5.0, num_labels(model, batch))
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, list(model.parameters()), create_graph=True)


@pytest.mark.parametrize("make", MAKERS)
def test_the_loss_is_the_mean_cross_entropy_and_half_alpha_times_the_mean_divergence(make: Maker) -> None:
    """From two passes by themselves: the passes differ in their dropout, whose draws are those of one double batch."""
    model, batch = make(dropout=0.3)
    torch.manual_seed(1)
    actual = r_drop_loss(model, batch, 5.0, num_labels(model, batch))
    torch.manual_seed(1)
    doubled = {name: tensor.repeat(2, 1) for name, tensor in batch.items()}
    logits = model(**doubled, return_logits=True).logits
    total, count = 0.0, 0
    shift = int(make is make_lm)
    for row in range(4):
        for position in range(shift, 6):
            label = int(batch["labels"][row, position])
            if label == -100:
                continue
            p, q = (Categorical(logits=logits[row + half, position - shift]) for half in (0, 4))
            for each in (p, q):
                smoothed = 0.9 * each.logits[label] + 0.1 * each.logits.mean()
                total = total - smoothed / 2
            total = total + 5.0 / 2 * (kl_divergence(p, q) + kl_divergence(q, p)) / 2
            count += 1
    torch.testing.assert_close(actual, total / count)
    plain = r_drop_loss(model, batch, 0.0, num_labels(model, batch))
    assert actual > plain + 0.1  # the passes do differ


@pytest.mark.parametrize("make", MAKERS)
def test_without_dropout_it_is_the_plain_loss_whatever_alpha(make: Maker) -> None:
    model, batch = make(dropout=0.0)
    plain = model(**batch).loss
    gradients = torch.autograd.grad(plain, list(model.parameters()))
    for alpha in (0.0, 5.0):
        loss = r_drop_loss(model, batch, alpha, num_labels(model, batch))
        torch.testing.assert_close(loss, plain)
        actual = torch.autograd.grad(loss, list(model.parameters()))
        torch.testing.assert_close(actual, gradients)


@pytest.mark.parametrize("make", MAKERS)
def test_the_gradient_is_that_of_finite_differences(make: Maker) -> None:
    model, batch = make(dropout=0.3)
    weight, num_items = model.lm_head.weight, num_labels(model, batch)

    def loss() -> torch.Tensor:
        torch.manual_seed(1)
        return r_drop_loss(model, batch, 5.0, num_items)

    (gradient,) = torch.autograd.grad(loss(), [weight])
    direction = torch.randn_like(weight)
    with torch.no_grad():
        weight.add_(direction, alpha=1e-6)
        above = loss()
        weight.sub_(direction, alpha=2e-6)
        below = loss()
    torch.testing.assert_close((gradient * direction).sum(), (above - below) / 2e-6, rtol=1e-6, atol=1e-7)


class ModelOfRows(nn.Module):
    """A model whose dropout depends on what is in a row and which pass it is, not on where in a batch it stands."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model, self.config = model, model.config

    def aligned_labels(self, labels: torch.Tensor) -> torch.Tensor:
        return self.model.aligned_labels(labels)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        return self.model.prepare_decoder_input_ids_from_labels(labels)

    def forward(self, **batch: torch.Tensor) -> Any:
        rows = len(batch["input_ids"])
        outputs = []
        for row in range(rows):
            torch.manual_seed(int(batch["input_ids"][row].sum()) * 2 + (row >= rows // 2))
            outputs.append(self.model(**{name: tensor[row, None] for name, tensor in batch.items()}))
        whole = outputs[0]
        whole.logits = torch.cat([output.logits for output in outputs])
        return whole


@pytest.mark.parametrize("make", MAKERS)
def test_the_loss_of_a_batch_is_the_sum_of_those_of_its_parts(make: Maker) -> None:
    model, batch = make(dropout=0.3)
    model, num_items = ModelOfRows(model), num_labels(model, batch)
    whole = r_drop_loss(model, batch, 5.0, num_items)
    parts = [{name: tensor[rows] for name, tensor in batch.items()} for rows in (slice(0, 1), slice(1, 4))]
    torch.testing.assert_close(sum(r_drop_loss(model, part, 5.0, num_items) for part in parts), whole)


@pytest.mark.parametrize("make", MAKERS)
def test_padding_does_not_count(make: Maker) -> None:
    model, batch = make(dropout=0.3)
    model, num_items = ModelOfRows(model), num_labels(model, batch)
    loss = r_drop_loss(model, batch, 5.0, num_items)
    without = {name: tensor[:3] for name, tensor in batch.items()}
    unlabelled = batch | {"labels": batch["labels"].clone().index_fill_(0, torch.tensor([3]), -100)}
    rest = r_drop_loss(model, without, 5.0, num_items)
    assert rest < loss
    torch.testing.assert_close(r_drop_loss(model, unlabelled, 5.0, num_items), rest)


@pytest.mark.parametrize("make", MAKERS)
def test_a_model_may_be_wrapped_for_several_processes(make: Maker) -> None:
    model, batch = make(dropout=0.3)
    num_items = num_labels(model, batch)
    torch.manual_seed(1)
    expected = r_drop_loss(model, batch, 5.0, num_items)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        torch.manual_seed(1)
        assert r_drop_loss(DistributedDataParallel(model), batch, 5.0, num_items) == expected
    finally:
        dist.destroy_process_group()


def test_a_batch_without_labels_has_no_loss_and_no_gradient() -> None:
    model, batch = make_lm(dropout=0.3)
    loss = r_drop_loss(model, batch | {"labels": torch.full((4, 6), -100)}, 5.0, torch.tensor(7))
    assert loss == 0
    loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
