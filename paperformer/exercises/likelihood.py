"""How likely what a model has written is to the model itself."""

import torch
from torch import Tensor


def log_probabilities(logits: Tensor, ids: Tensor) -> Tensor:
    """The log-probability of each token under the logits of its place, in nats: (B, T, V) and (B, T) -> (B, T)."""
    return logits.float().log_softmax(-1).gather(-1, ids[..., None])[..., 0]


def until_end(ids: Tensor, end_ids: list[int]) -> Tensor:
    """Which tokens are written, the end mark included and what pads behind it not: (B, T), of bool."""
    is_end = torch.isin(ids, torch.tensor(end_ids, device=ids.device)).long()
    return is_end.cumsum(-1) - is_end == 0
