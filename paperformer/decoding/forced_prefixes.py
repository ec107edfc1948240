"""Translations that begin as they are told."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedTokenizerBase


class ForcedPrefixes(LogitsProcessor):
    """Leaves only one next token while a translation is within its prefix.

    Args:
        prefixes: ids of each sentence's, none where it is free.
        rows: how many hypotheses in turn each sentence has.
        device: of the scores.
    """

    def __init__(self, prefixes: Sequence[Sequence[int]], rows: int, device: torch.device):
        longest = max(map(len, prefixes))
        filled = [[*ids, *[-1] * (longest - len(ids))] for ids in prefixes]
        self.ids: Tensor = torch.tensor(filled, dtype=torch.long, device=device).repeat_interleave(rows, 0)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        place = input_ids.shape[1] - 1  # behind the mark that begins it
        if place >= self.ids.shape[1]:
            return scores
        forced = self.ids[:, place, None]  # (rows, 1)
        place_of = forced.clamp(min=0)
        only = torch.full_like(scores, -torch.inf).scatter(1, place_of, scores.gather(1, place_of))
        return torch.where(forced < 0, scores, only)


def prefix_ids(prefix: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids of what a translation is to begin with."""
    ids: list[int] = tokenizer(text_target=prefix, add_special_tokens=False).input_ids if prefix else []
    return ids
