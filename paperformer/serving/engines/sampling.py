"""Sampling where each row of a batch has a temperature, a nucleus and a seed of its own.

The maximum of log-probabilities with Gumbel noise is a sample of their distribution (Gumbel 1954; Maddison et al. 2014,
section 2). So all rows are decoded greedily, in one batch, and the noise of a row comes from its own seed: what it
becomes does not depend on its neighbours.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import LogitsProcessor

from .text import Sampling


class RowwiseSampling(LogitsProcessor):
    """Makes the choice of each row the maximum of its scores.

    Args:
        rows: how each is sampled.
    """

    def __init__(self, rows: Sequence[Sampling]):
        self.sampled = [place for place, row in enumerate(rows) if row.temperature > 0]
        chosen = [rows[place] for place in self.sampled]
        self.temperature = torch.tensor([row.temperature for row in chosen])[:, None]
        self.top_p = torch.tensor([row.top_p for row in chosen])[:, None]
        self.generators = [torch.Generator().manual_seed(row.seed) for row in chosen]
        self.log_probs: Tensor | None = None
        """Of the next tokens before temperature and nucleus, (B, V)."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.log_probs = scores.float().log_softmax(-1)
        if not self.sampled:
            return scores
        places = torch.tensor(self.sampled, device=scores.device)
        own = nucleus(scores[places].float() / self.temperature.to(scores.device), self.top_p.to(scores.device))
        noise = torch.stack([_gumbel(own.shape[-1], generator) for generator in self.generators])
        return scores.float().index_copy(0, places, own + noise.to(scores.device))


def nucleus(logits: Tensor, top_p: Tensor) -> Tensor:
    """Logits, (B, V), with -inf where a token is outside of the smallest set of probability `top_p`, (B, 1)."""
    ordered, order = logits.sort(-1, descending=True)
    probabilities = ordered.softmax(-1)
    is_outside = probabilities.cumsum(-1) - probabilities >= top_p  # those before it suffice
    is_outside &= top_p < 1  # where rounding must not lose the rarest
    return logits.masked_fill(is_outside.gather(-1, order.argsort(-1)), -torch.inf)


def _gumbel(count: int, generator: torch.Generator) -> Tensor:
    uniform = torch.rand(count, generator=generator, dtype=torch.float64)
    tiny = torch.finfo(torch.float64).tiny
    return -(-uniform.clamp(min=tiny).log()).clamp(min=tiny).log().float()
