"""Random token ids for the tiny models of these tests, and batches of rows of different lengths."""

import torch
from torch import Tensor


def ids(*shape: int) -> Tensor:
    """Of the vocabulary of 50, without the special tokens."""
    return torch.randint(3, 50, shape)


def padded(rows: list[Tensor], side: str) -> tuple[Tensor, Tensor]:
    """Token ids and mask, (B, longest)."""
    batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1, padding_side=side)
    return batch.clamp(min=0), (batch >= 0).long()
