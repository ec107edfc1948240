"""Batches of examples of similar length, with a budget of tokens, and their padding."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Batch = dict[str, torch.Tensor]

TokenIds = Sequence[int] | NDArray[np.integer[Any]]
"""Ids of a text, (T,)."""


def token_budget_batches(
    lengths: NDArray[np.integer[Any]], tokens_per_batch: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Groups examples of similar length so that no padded batch exceeds a budget (Vaswani et al. 2017, section 5.1).

    Pairs are sorted by their longer side, so that batches are as full as they can be; pairs that are equal in it lie in
    the order of the difference of their sides, upwards and downwards by turns, so that both sides are always close to
    those of the neighbours. Which turn comes first is drawn anew, as are the places of equally long examples; so an
    epoch's batches are not the last one's in another order.

    Args:
        lengths: (N,) or (N, 2), tokens of each example (for pairs, of both sides; the longer side counts).
        tokens_per_batch: largest number of examples in a batch times its longest length. An example that is longer
            than the budget becomes a batch by itself.
        rng: decides all that is random, which includes the order of the batches.

    Returns:
        Arrays of example indices; every index from 0 to N-1 occurs in exactly one of them.
    """
    if len(lengths) == 0:
        return []
    # Small types on purpose: of 16 bits and less numpy sorts by radix, and ten million rows stay in 0.4 GB.
    sides = lengths.reshape(len(lengths), -1).astype(np.min_scalar_type(2 * int(lengths.max())))
    longest = sides.max(axis=1)
    difference = longest - sides[:, -1] + sides[:, 0]  # and the longest added, so that it is not negative
    is_upwards = (longest + int(rng.integers(2))) % 2 == 1
    order = rng.permutation(len(sides))
    for key in (np.where(is_upwards, difference, 2 * longest - difference), longest):
        order = order[np.argsort(key[order], kind="stable")]
    longest = longest[order]
    batches, start = [], 0
    while start < len(order):
        candidates = longest[start : start + max(1, tokens_per_batch // max(1, int(longest[start])))]
        sizes = candidates * np.arange(
            1, len(candidates) + 1
        )  # of the batch up to each: sorted, the last is the longest
        end = start + max(1, int(np.searchsorted(sizes, tokens_per_batch, side="right")))
        batches.append(order[start:end])
        start = end
    return [batches[i] for i in rng.permutation(len(batches))]


def pad(sequences: Sequence[TokenIds], value: int) -> torch.Tensor:
    """Right-pads B sequences to the longest: (B, T)."""
    longest = max(map(len, sequences))
    padded = np.full((len(sequences), longest), value, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded)
