"""BERT's objective: to find out, from both sides, what stood where tokens were masked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from ..token_store import IdFile
from .token_budget import Batch, TokenIds, pad


def find_ordinary_tokens(tokenizer: PreTrainedTokenizerBase) -> NDArray[np.bool_]:
    """For each id of the vocabulary, (V,), whether it stands for text."""
    is_ordinary = np.ones(len(tokenizer), dtype=np.bool_)
    is_ordinary[tokenizer.all_special_ids] = False
    return is_ordinary


def mask_tokens(
    input_ids: NDArray[np.integer[Any]],
    is_ordinary: NDArray[np.bool_],
    mask_token_id: int,
    rng: np.random.Generator,
    probability: float = 0.15,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Masks some ordinary tokens of each sequence for a model to predict (Devlin et al. 2019, section 3.1).

    In each sequence `probability` of them are chosen, rounded, but at least one. Of the chosen, 80 % become the mask
    token, 10 % a random ordinary token, and 10 % stay what they are: text outside of training has no mask token, so a
    model must not rely on it.

    Args:
        input_ids: (B, T).
        is_ordinary: for each id of the vocabulary, (V,), whether it stands for text. Special tokens, padding and unused
            ids do not; they are neither masked nor put in.
        mask_token_id: id of the mask token.
        rng: decides what is masked and how.
        probability: share of the ordinary tokens to predict.

    Returns:
        The masked ids and the labels, both (B, T); labels are -100 where nothing is to be predicted.

    Raises:
        ValueError: if the probability is not between 0 and 1.
    """
    if not 0 < probability <= 1:
        raise ValueError(f"probability is {probability}; it must be above 0 and at most 1")
    candidates = is_ordinary[input_ids]  # (B, T)
    counts = candidates.sum(axis=1, keepdims=True)
    wanted = np.minimum(counts, np.maximum(1, np.rint(probability * counts)))  # (B, 1)
    # Candidates in random order before all others; argsort of argsort is the place in that order.
    places = np.where(candidates, rng.random(input_ids.shape), 1.0).argsort(axis=1).argsort(axis=1)
    is_chosen = places < wanted
    masked = input_ids.astype(np.int64)
    labels = np.where(is_chosen, masked, -100)
    fate = rng.random(input_ids.shape)
    masked[is_chosen & (fate < 0.8)] = mask_token_id
    is_replaced = is_chosen & (fate >= 0.9)
    masked[is_replaced] = rng.choice(np.flatnonzero(is_ordinary), size=int(is_replaced.sum()))
    return masked, labels


def collate_masked(
    sequences: Sequence[TokenIds],
    is_ordinary: NDArray[np.bool_],
    mask_token_id: int,
    pad_token_id: int,
    rng: np.random.Generator,
    probability: float = 0.15,
) -> Batch:
    """Pads B sequences and masks them; see `mask_tokens`.

    Returns:
        `input_ids`, `attention_mask` and `labels`, each (B, T).
    """
    input_ids = pad(sequences, pad_token_id)
    masked, labels = mask_tokens(input_ids.numpy(), is_ordinary, mask_token_id, rng, probability)
    return {
        "input_ids": torch.from_numpy(masked),
        "attention_mask": pad([[1] * len(sequence) for sequence in sequences], 0),
        "labels": torch.from_numpy(labels),
    }


@dataclass(frozen=True, kw_only=True)
class MaskedBlocks:
    """Masks blocks of running text, anew each time that they come (Liu et al. 2019, arXiv 1907.11692, section 4.1)."""

    is_ordinary: NDArray[np.bool_]
    """For each id of the vocabulary, (V,), whether it stands for text."""

    mask_token_id: int
    pad_token_id: int
    probability: float

    def __call__(
        self,
        tokens: NDArray[np.integer[Any]] | IdFile,
        blocks: NDArray[np.int64],
        document_starts: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> Batch:
        rows = [tokens[start:end] for start, end in blocks]
        return collate_masked(rows, self.is_ordinary, self.mask_token_id, self.pad_token_id, rng, self.probability)
