"""Batches with a budget of tokens, and the stream of batches that a run walks through.

A stream's position is two numbers, epoch and index, and its order depends on the seed and the epoch alone. A resumed
run therefore sees exactly the batches that the interrupted one would have seen.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

Batch = dict[str, torch.Tensor]


def token_budget_batches(lengths: np.ndarray, tokens_per_batch: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Groups examples of similar length so that no padded batch exceeds a budget (Vaswani et al. 2017, section 5.1).

    Args:
        lengths: (N,) or (N, 2), tokens of each example (for pairs, of both sides; the longer side counts).
        tokens_per_batch: largest number of examples in a batch times its longest length. An example that is longer
            than the budget becomes a batch by itself.
        rng: shuffles examples of equal length, and the batches.

    Returns:
        Arrays of example indices; every index from 0 to N-1 occurs in exactly one of them.
    """
    if len(lengths) == 0:
        return []
    sides = lengths.reshape(len(lengths), -1)
    longest = sides.max(axis=1)
    order = np.lexsort((rng.random(len(sides)), sides[:, 0], longest))
    batches, start = [], 0
    for end in range(1, len(order) + 1):
        # Sorted by length: the next example is the longest of the batch it would join.
        if end == len(order) or longest[order[end]] * (end + 1 - start) > tokens_per_batch:
            batches.append(order[start:end])
            start = end
    return [batches[i] for i in rng.permutation(len(batches))]


def pad(sequences: Sequence[Sequence[int]], value: int) -> torch.Tensor:
    """Right-pads B sequences to the longest: (B, T)."""
    longest = max(map(len, sequences))
    padded = np.full((len(sequences), longest), value, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded)


class BatchStream:
    """An endless iterator over the batches of one process, epoch after epoch, that can be saved and resumed.

    Args:
        epoch_batches: for an epoch number, the batches of all processes in order; each is what `collate` takes.
        collate: makes tensors of one of them.
        process_index, num_processes: this process takes every num_processes-th batch. Left-over batches at the end of
            an epoch are dropped, so that all processes take the same number of steps.
    """

    def __init__(
        self,
        epoch_batches: Callable[[int], Sequence[Any]],
        collate: Callable[[Any], Batch],
        process_index: int = 0,
        num_processes: int = 1,
    ):
        self.epoch_batches = epoch_batches
        self.collate = collate
        self.process_index, self.num_processes = process_index, num_processes
        self.epoch, self.index = 0, 0

    def __iter__(self) -> Iterator[Batch]:
        while True:
            batches = self.epoch_batches(self.epoch)
            mine = batches[
                self.process_index : len(batches) // self.num_processes * self.num_processes : self.num_processes
            ]
            if not mine:
                raise ValueError(f"{len(batches)} batches an epoch are too few for {self.num_processes} processes")
            while self.index < len(mine):
                self.index += 1  # before the yield: a state saved after this batch points to the next one
                yield self.collate(mine[self.index - 1])
            self.epoch, self.index = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """The position: the next batch is number `index` of epoch `epoch`."""
        return {"epoch": self.epoch, "index": self.index}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continues at a saved position; call before iterating."""
        self.epoch, self.index = state["epoch"], state["index"]
