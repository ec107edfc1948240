"""Running text as blocks of equal length for training, and as windows for scoring.

The documents of a corpus, each between its marks, lie one after another in one array of tokens. A language model
predicts each token of its input from those before it, so a block of T tokens has T - 1 predictions, and the first token
of all has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..token_store import IdFile
from .token_budget import Batch, pad


def blocks_of_epoch(
    num_tokens: int, block_length: int, rng: np.random.Generator, *, is_causal: bool = True
) -> NDArray[np.int64]:
    """Cuts running text into blocks of up to `block_length` tokens, at other places each epoch.

    For a model that predicts tokens from those before them (`is_causal`) neighbouring blocks share one token, the last
    of one and the first of the next, so that every token but the first is predicted exactly once; otherwise every token
    is in one block. The first block has a random length, and the last what is left: both may be short. Those of a
    single token, of which nothing can be learned, are left out.

    Returns:
        Where blocks begin and end, (N, 2), in random order; none of a text of one token.

    Raises:
        ValueError: if a block would have no prediction.
    """
    if block_length < 2:
        raise ValueError(f"block_length is {block_length}; a prediction needs at least 2 tokens")
    if num_tokens < 2:
        return np.empty((0, 2), dtype=np.int64)
    shared = int(is_causal)
    step = block_length - shared
    cuts = np.arange(rng.integers(1, step + 1), num_tokens - shared, step)
    bounds = np.concatenate(([0], cuts, [num_tokens - shared]))
    blocks = np.stack((bounds[:-1], bounds[1:] + shared), axis=1)
    return rng.permutation(blocks[blocks[:, 1] - blocks[:, 0] > 1])


def batches_of_blocks(blocks: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """Groups blocks, (N, 2), into batches, (B, 2), in the order given; the last batch may be smaller."""
    return [blocks[first : first + batch_size] for first in range(0, len(blocks), batch_size)]


def collate_blocks(
    tokens: NDArray[np.integer[Any]] | IdFile,
    blocks: NDArray[np.int64],
    pad_token_id: int,
    document_starts: NDArray[np.int64] | None = None,
) -> Batch:
    """Tensors of some blocks; the short ones are padded on the right, where no real token looks.

    Args:
        tokens: the whole text, (num_tokens,).
        blocks: where blocks begin and end, (B, 2).
        pad_token_id: what to pad with.
        document_starts: where documents begin in the text, in ascending order, if no token is to see another document.
            By default the text is one, whose documents only marks tell apart.

    Returns:
        `input_ids` and `labels`, (B, T). With `document_starts` also `position_ids`, (B, T), which start at 0 with each
        document, and by which models tell several in a row apart; they do so only without an `attention_mask` and with
        `use_cache=False`. A document's first token then has no label, as nothing before it says anything about it.
    """
    rows = [tokens[start:end] for start, end in blocks]
    batch = {"input_ids": pad(rows, pad_token_id), "labels": pad(rows, -100)}
    if document_starts is not None:
        begins = np.zeros(batch["input_ids"].shape, dtype=np.int64)  # (B, T): its own place where a document begins
        for row, (start, end) in enumerate(blocks):
            first, last = np.searchsorted(document_starts, (start, end))
            places = document_starts[first:last] - start
            begins[row, places] = places
            batch["labels"][row, places] = -100
        positions = np.arange(begins.shape[1]) - np.maximum.accumulate(begins, axis=1)
        batch["position_ids"] = torch.from_numpy(positions)
    return batch


@dataclass(frozen=True, kw_only=True)
class CausalBlocks:
    """The tensors of blocks for a language model; see `collate_blocks`."""

    pad_token_id: int
    separate_documents: bool = False
    """Whether no token is to see another document."""

    def __call__(
        self,
        tokens: NDArray[np.integer[Any]] | IdFile,
        blocks: NDArray[np.int64],
        document_starts: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> Batch:
        return collate_blocks(tokens, blocks, self.pad_token_id, document_starts if self.separate_documents else None)


def evaluation_windows(num_tokens: int, context_length: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Windows over a document that score each of its tokens but the first exactly once, with enough context.

    A token is predicted from at least `context_length - stride` tokens before it, or from all there are.

    Args:
        num_tokens: length of the document.
        context_length: longest window.
        stride: how many tokens a window scores that is not the first. Small strides give more context and cost more.

    Returns:
        Where a window begins and ends, and the first token in it that is scored; all count from the document's start.

    Raises:
        ValueError: before the first window, if a token would have no context or the windows made no progress.
    """
    if not 1 <= stride < context_length:
        raise ValueError(f"stride is {stride}; it must be from 1 to context_length - 1 ({context_length - 1})")
    start, scored = 0, 1
    while scored < num_tokens:
        end = min(start + context_length, num_tokens)
        yield start, end, scored
        start, scored = start + stride, end
