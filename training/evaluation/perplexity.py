"""How likely a text is to a model: loss a token, perplexity a word, bits a byte.

Sums and counts travel together and are divided once, at the end.
"""

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from transformers import PreTrainedModel

from ..console.progress import ProgressBar
from ..data.batches.packing import evaluation_windows
from ..data.batches.token_budget import Batch, TokenIds, pad
from .metrics import BITS_PER_BYTE, LOSS, PERPLEXITY, Score


@torch.no_grad()  # not inference_mode: sharded weights that are gathered in it could not be trained
def loss_per_token(model: PreTrainedModel, batches: Iterable[Batch]) -> Score:
    """Mean cross-entropy over all labels of all batches, not smoothed, in nats a token."""
    model.eval()
    total, tokens = 0.0, 0
    for batch in batches:
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        # Divided by 1: the sum. Logits are not wanted, the loss alone is computed in chunks.
        total += model(**batch, num_items_in_batch=1, return_logits=False).loss.item()
        tokens += count_labels(model, batch)
    return Score(metric=LOSS, value=total / max(1, tokens), count=tokens)


def count_labels(model: PreTrainedModel, batch: Batch) -> int:
    """How many labels of a batch count for the loss of one of our models."""
    return int((aligned_labels(model, batch["labels"]) != -100).sum())


def aligned_labels(model: PreTrainedModel, labels: torch.Tensor) -> torch.Tensor:
    """What the logits of each position are compared with; see `PaperformerPreTrainedModel.aligned_labels`."""
    untyped: Any = model
    return untyped.aligned_labels(labels)


def language_model_scores(
    model: PreTrainedModel, documents: Iterable[TokenIds], texts: Iterable[str], context_length: int
) -> list[Score]:
    """Loss in nats a token, perplexity a word and bits a byte of running text.

    Every token of every document is predicted once, its end mark included, from at least half a context of tokens
    before it (fewer only where the document has no more). Words are what white space separates; bytes are UTF-8.

    Args:
        documents: token ids of each document, each beginning with `<s>`, which is not predicted itself.
        texts: the text of the same documents, for counting words and bytes; pieces that are cut at white space.
        context_length: tokens a window.
    """
    loss = loss_per_token(model, _overlapping_windows(documents, context_length))
    nats = loss.value * loss.count
    words = num_bytes = 0
    for text in texts:
        words += len(text.split())
        num_bytes += len(text.encode("utf-8"))
    return [
        loss,
        Score(metric=PERPLEXITY, value=math.exp(nats / words), count=words),
        Score(metric=BITS_PER_BYTE, value=nats / math.log(2) / num_bytes, count=num_bytes),
    ]


def _overlapping_windows(documents: Iterable[TokenIds], context_length: int, batch_size: int = 16) -> Iterable[Batch]:
    """Windows of up to context_length tokens; of all but a document's first, only the second half has labels."""
    windows = (
        (document[start:end], scored - start)
        for document in documents
        for start, end, scored in evaluation_windows(len(document), context_length, context_length // 2)
    )
    with ProgressBar(desc="score", unit=" tokens") as bar:
        while batch := list(islice(windows, batch_size)):
            input_ids = pad([ids for ids, _ in batch], 0)
            labels = pad([ids for ids, _ in batch], -100)
            for row, (_, first_scored) in zip(labels, batch, strict=True):
                row[:first_scored] = -100
            yield {
                "input_ids": input_ids,
                "attention_mask": pad([[1] * len(ids) for ids, _ in batch], 0),
                "labels": labels,
            }
            bar.update(int((labels != -100).sum()))
