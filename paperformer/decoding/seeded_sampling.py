"""Sampling in which the sample of a text depends on the text and the seed alone, not on what is decoded beside it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor


class DrawnTokens(LogitsProcessor):
    """Draws the next token of each row, and leaves greedy decoding no other: put it behind all that changes scores.

    By the inverse of the distribution function, with numbers that were drawn before.

    Args:
        texts: the ids by which the numbers of each are drawn, those of its source or prompt.
        samples: how many rows in turn each has.
        steps: the most tokens that can be drawn.
        seed: of the numbers, with the ids.
        prompt_length: tokens of a row before the first that is drawn.
    """

    def __init__(self, texts: Sequence[Sequence[int]], samples: int, steps: int, seed: int, prompt_length: int = 1):
        drawn = [np.random.default_rng([seed, *ids]).random((samples, steps)) for ids in texts]
        self.numbers = torch.from_numpy(np.concatenate(drawn))  # (rows, steps), from 0 to 1
        self.prompt_length = prompt_length

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        upto: Tensor = scores.double().softmax(-1).cumsum(-1)  # (rows, V)
        numbers = self.numbers[:, input_ids.shape[1] - self.prompt_length, None].to(upto.device) * upto[:, -1:]
        drawn = torch.searchsorted(upto, numbers, right=True).clamp(max=upto.shape[1] - 1)
        return torch.full_like(scores, -torch.inf).scatter(1, drawn, 0.0)
