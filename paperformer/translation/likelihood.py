"""How likely what a model has written is to the model itself."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..training.data.batches.token_budget import pad
from ..training.evaluation.decoding import longest_sequence

PAIRS_AT_A_TIME = 32


def log_probabilities(logits: Tensor, ids: Tensor) -> Tensor:
    """The log-probability of each token under the logits of its place, in nats: (B, T, V) and (B, T) -> (B, T)."""
    return logits.float().log_softmax(-1).gather(-1, ids[..., None])[..., 0]


def end_tokens(model: PreTrainedModel) -> list[int]:
    """The tokens that end what a model writes; none where it has none."""
    settings: Any = model.generation_config
    ends = settings and settings.eos_token_id
    return ends if isinstance(ends, list) else [] if ends is None else [ends]


def until_end(ids: Tensor, end_ids: list[int]) -> Tensor:
    """Which tokens are written, the end mark included and what pads behind it not: (B, T), of bool."""
    is_end = torch.isin(ids, torch.tensor(end_ids, device=ids.device)).long()
    return is_end.cumsum(-1) - is_end == 0


@torch.no_grad()
def confidences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None,
    sources: Sequence[str],
    translations: Sequence[str],
) -> list[float]:
    """The geometric mean of the probabilities of a translation's tokens, its end mark included, from 0 to 1.

    Of a source or a translation that is longer than the model takes, the beginning counts. The probability of a token
    under an ensemble is the mean of those under its models.
    """
    members: Sequence[PreTrainedModel] = getattr(model, "members", None) or [model]
    longest = min(tokenizer.model_max_length, longest_sequence(model))
    cut: dict[str, Any] = {"truncation": True, "max_length": longest}
    found: list[float] = []
    for start in range(0, len(sources), PAIRS_AT_A_TIME):
        inputs = tokenizer(list(sources[start : start + PAIRS_AT_A_TIME]), **cut).input_ids
        texts = list(translations[start : start + PAIRS_AT_A_TIME])
        # By their meaning as targets: some tokenizers mark them otherwise.
        targets = (target_tokenizer or tokenizer)(text_target=texts, **cut).input_ids
        labels = pad(targets, -100).to(model.device)  # (B, T)
        ids = pad(inputs, tokenizer.pad_token_id).to(model.device)  # (B, S)
        mask = pad([[1] * len(row) for row in inputs], 0).to(model.device)
        logits = (member(input_ids=ids, attention_mask=mask, labels=labels).logits for member in members)  # (B, T, V)
        of_members = torch.stack([log_probabilities(own, labels.clamp(min=0)) for own in logits])
        counts = labels != -100
        sums = ((of_members.logsumexp(0) - math.log(len(members))) * counts).sum(-1)
        found += (sums / counts.sum(-1)).exp().tolist()
    return found
