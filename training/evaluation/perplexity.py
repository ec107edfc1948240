"""How likely a text is to a model: loss a token, perplexity a word, bits a byte.

Models are ours or any of transformers: a language model predicts each token from those before it, an encoder a masked
token from all others. Sums and counts travel together and are divided once, at the end.
"""

import inspect
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from transformers import PreTrainedModel

from ..console.input_error import InputError
from ..console.progress import ProgressBar
from ..data.batches.packing import evaluation_windows
from ..data.batches.token_budget import Batch, TokenIds, pad, token_budget_batches
from .metrics import BITS_PER_BYTE, BYTE_PERPLEXITY, LOSS, PERPLEXITY, TOKEN_PERPLEXITY, Score

LOGITS_AT_ONCE = 2**25
"""Logits of a batch of a model that gives all of them: 128 MB in float32."""

CHUNK_LOGITS = 2**22
"""Logits that are normalised at once: 16 MB stay in a processor's cache."""


@torch.no_grad()  # not inference_mode: sharded weights that are gathered in it could not be trained
def loss_per_token(model: PreTrainedModel, batches: Iterable[Batch]) -> Score:
    """Mean cross-entropy over all labels of all batches, not smoothed, in nats a token."""
    model.eval()
    total, tokens = 0.0, 0
    for batch in batches:
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        total += _summed_loss(model, batch)
        tokens += count_labels(model, batch)
    return Score(metric=LOSS, value=total / max(1, tokens), count=tokens)


def _summed_loss(model: PreTrainedModel, batch: Batch) -> float:
    """The sum of the losses of a batch, in nats."""
    if is_ours(model):
        # Divided by 1: the sum. Logits are not wanted, the loss alone is computed in chunks.
        return float(model(**batch, num_items_in_batch=1, return_logits=False).loss)
    return float(_losses_by_logits(model, batch).sum())


def _losses_by_logits(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    """The loss of each label of a batch that counts, row by row, (n,), in nats."""
    labels = aligned_labels(model, batch["labels"])
    inputs: dict[str, Any] = {name: tensor for name, tensor in batch.items() if name != "labels"}
    first = 0  # position of which logits are wanted
    forward = inspect.signature(model.forward).parameters
    if "use_cache" in forward:
        inputs["use_cache"] = False
    if "logits_to_keep" in forward and (labels != -100).any():
        first = int((labels != -100).any(0).nonzero()[0])
        inputs["logits_to_keep"] = batch["labels"].shape[1] - first
    return losses_of_labels(model(**inputs).logits, labels[:, first:])


def losses_of_labels(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the labels that count, in nats, without a second tensor of the size of the logits.

    Args:
        logits: (B, T, V), T or more positions.
        labels: what they are compared with, (B, T); -100 where none counts.

    Returns:
        Of each label that counts, row by row, (n,), in float64 and on the CPU.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    rows, columns = (labels != -100).nonzero(as_tuple=True)
    size = max(1, CHUNK_LOGITS // logits.shape[-1])
    losses = [
        F.cross_entropy(logits[row, column].to(wide), labels[row, column], reduction="none")
        for row, column in zip(rows.split(size), columns.split(size), strict=True)
    ]
    return torch.cat(losses).cpu().double()


def count_labels(model: PreTrainedModel, batch: Batch) -> int:
    """How many labels of a batch count for a model's loss."""
    return int((aligned_labels(model, batch["labels"]) != -100).sum())


def aligned_labels(model: PreTrainedModel, labels: torch.Tensor) -> torch.Tensor:
    """What the logits of each position are compared with; see `PaperformerPreTrainedModel.aligned_labels`."""
    untyped: Any = model
    if is_ours(model):
        return untyped.aligned_labels(labels)
    return labels if fills_in(model) else labels[:, 1:]


def is_ours(model: PreTrainedModel) -> bool:
    """Whether it is a model of this package, which computes its loss in chunks; a wrapper's attributes are those."""
    return hasattr(model, "aligned_labels")


def fills_in(model: PreTrainedModel) -> bool:
    """Whether it predicts tokens that were masked, and not those that follow."""
    return type(model).__name__.endswith("ForMaskedLM")


def language_model_scores(
    model: PreTrainedModel,
    documents: Sequence[TokenIds],
    texts: Iterable[str],
    context_length: int,
    stride: int | None = None,
    *,
    token_losses: Sequence[NDArray[np.float64]] | None = None,
) -> list[Score]:
    """Loss in nats a token, perplexity a word and bits a byte of running text.

    Every token of every document but its first is predicted once, from at least `context_length - stride` tokens
    before it (fewer only where the document has no more). Words are what white space separates; bytes are UTF-8.

    Args:
        documents: token ids of each document; its first token, `<s>` in training, is not predicted itself.
        texts: the text of the same documents, for counting words and bytes; pieces that are cut at white space.
        context_length: tokens a window.
        stride: how many tokens a window goes on from the last; by default half a context.
        token_losses: what `losses_of_tokens` has found with that context and stride; by default only sums are computed.

    Raises:
        InputError: if the text has no words.
        ValueError: if the stride is not from 1 to context_length - 1.
    """
    stride = context_length // 2 if stride is None else stride
    words = num_bytes = 0
    for text in texts:
        words += len(text.split())
        num_bytes += len(text.encode("utf-8"))
    if words == 0:
        raise InputError("the text has no words, only white space")
    if token_losses is None:
        loss = loss_per_token(model, overlapping_windows(documents, context_length, stride, _tokens_per_batch(model)))
    else:
        count = sum(len(document) - 1 for document in documents)
        loss = Score(metric=LOSS, value=sum(map(np.nansum, token_losses)) / max(1, count), count=count)
    nats = loss.value * loss.count
    signature = f"context:{context_length}|stride:{stride}"
    return [
        Score(metric=LOSS, value=loss.value, count=loss.count, signature=signature),
        Score(metric=PERPLEXITY, value=perplexity(nats / words), count=words, signature=signature),
        Score(metric=BITS_PER_BYTE, value=nats / math.log(2) / num_bytes, count=num_bytes, signature=signature),
    ]


@torch.no_grad()  # as `loss_per_token`
def losses_of_tokens(
    model: PreTrainedModel, documents: Sequence[TokenIds], context_length: int, stride: int | None = None
) -> list[NDArray[np.float64]]:
    """The loss of each token of each document, in nats, as `language_model_scores` sums them up.

    Returns:
        Of a document of T tokens (T,); not a number for the first, which is not predicted.
    """
    model.eval()
    losses = [np.full(len(document), np.nan) for document in documents]
    tokens_per_batch = min(8192, LOGITS_AT_ONCE // vocabulary_size(model))
    stride = context_length // 2 if stride is None else stride
    for windows, batch in _batches_of_windows(documents, context_length, stride, tokens_per_batch):
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        found = _losses_by_logits(model, batch).numpy()
        for number, _, end, scored in windows:
            losses[number][scored:end], found = found[: end - scored], found[end - scored :]
    return losses


def in_other_units(scores: Sequence[Score]) -> list[Score]:
    """What a loss in nats a token and bits a byte are as perplexities a token and a byte."""
    units = {LOSS: (TOKEN_PERPLEXITY, 1.0), BITS_PER_BYTE: (BYTE_PERPLEXITY, math.log(2))}
    return [
        Score(metric=metric, value=perplexity(score.value * nats), count=score.count, signature=score.signature)
        for score in scores
        if score.metric in units
        for metric, nats in [units[score.metric]]
    ]


def perplexity(nats: float) -> float:
    """e to a loss; infinite where no float is as large, as for a "word" of a language that separates none."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


def _tokens_per_batch(model: PreTrainedModel) -> int:
    """Positions that are computed at once, a whole window at least."""
    return 8192 if is_ours(model) else LOGITS_AT_ONCE // vocabulary_size(model)


def vocabulary_size(model: PreTrainedModel) -> int:
    """How many logits a position has."""
    return int(model.config.get_text_config().vocab_size)


def overlapping_windows(
    documents: Sequence[TokenIds], context_length: int, stride: int, tokens_per_batch: int
) -> Iterator[Batch]:
    """Windows of up to context_length tokens, in batches of similar length, the longest first.

    Only a document's first window has labels from its beginning; of others only what the one before did not reach.
    """
    for _, batch in _batches_of_windows(documents, context_length, stride, tokens_per_batch):
        yield batch


def _batches_of_windows(
    documents: Sequence[TokenIds], context_length: int, stride: int, tokens_per_batch: int
) -> Iterator[tuple[list[tuple[int, int, int, int]], Batch]]:
    """As `overlapping_windows`, each with (document, start, end, first token that is scored) of its rows."""
    windows = [
        (number, *window)
        for number, document in enumerate(documents)
        for window in evaluation_windows(len(document), context_length, stride)
    ]
    lengths = np.array([end - start for _, start, end, _ in windows], dtype=np.int64)
    batches = token_budget_batches(lengths, tokens_per_batch, np.random.default_rng(0))
    batches.sort(key=lambda batch: -lengths[batch].max())  # a batch too large for memory fails first
    with ProgressBar(total=sum(end - scored for *_, end, scored in windows), desc="score", unit=" tokens") as bar:
        for batch in batches:
            rows = [windows[index] for index in batch]
            ids = [documents[number][start:end] for number, start, end, _ in rows]
            labels = pad(ids, -100)
            for row, (_, start, _, scored) in zip(labels, rows, strict=True):
                row[: scored - start] = -100
            yield (
                rows,
                {
                    "input_ids": pad(ids, 0),
                    "attention_mask": pad([[1] * len(row) for row in ids], 0),
                    "labels": labels,
                },
            )
            bar.update(int((labels != -100).sum()))
