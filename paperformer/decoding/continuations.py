"""Prompts and how a language model goes on with them, many at a time, each as if it were alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ..training.console.input_error import InputError
from ..training.data.batches.token_budget import token_budget_batches
from ..training.evaluation.decoding import generate, longest_sequence
from ..translation.cutting import Notes
from .seeded_sampling import DrawnTokens

TOKENS_PER_BATCH = 8192
"""Of prompts and what is written behind them."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next tokens are chosen; see `api.texts.generate`.

    Raises:
        InputError: for a value out of its range.
    """

    max_new_tokens: int = 200
    temperature: float = 0.9
    top_p: float = 0.95
    top_k: int = 0
    repetition_penalty: float = 1.0
    num_sequences: int = 1
    stop: tuple[str, ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        for name, least in (("max_new_tokens", 1), ("num_sequences", 1), ("top_k", 0), ("temperature", 0), ("seed", 0)):
            if not getattr(self, name) >= least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}; it must be greater than 0 and at most 1")
        if not self.repetition_penalty > 0:
            raise InputError(f"repetition_penalty is {self.repetition_penalty}; it must be greater than 0")
        if self.temperature == 0 and self.num_sequences > 1:
            raise InputError(f"num_sequences is {self.num_sequences} and temperature 0, which gives the same each time")
        if not all(self.stop):
            raise InputError("stop is empty; it must have characters")


@dataclass(frozen=True)
class Continuation:
    """What a model has written behind a prompt."""

    prompt: str
    """As the tokenizer reads it."""

    text: str
    """What follows; without what it was to stop at, and what is behind that."""


class StopStrings(StoppingCriteria):
    """Ends a sequence when it has written one of some strings.

    Args:
        strings: not empty.
        tokenizer: of the model.
        prompt_length: tokens before the first that is written.
    """

    def __init__(self, strings: Sequence[str], tokenizer: PreTrainedTokenizerBase, prompt_length: int):
        self.strings, self.tokenizer, self.prompt_length = strings, tokenizer, prompt_length
        # What was just completed lies in so many tokens, of a byte at least.
        self.reach = 1 + max(len(string.encode()) for string in strings)

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        written = input_ids[:, max(self.prompt_length, input_ids.shape[1] - self.reach) :]
        texts = self.tokenizer.batch_decode(written, skip_special_tokens=True)
        is_done = [any(string in text for string in self.strings) for text in texts]
        return torch.tensor(is_done, device=input_ids.device)


@torch.no_grad()
def continue_prompts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    sampling: Sampling,
    note: Notes,
    **options: Any,
) -> list[list[Continuation]]:
    """What a language model writes behind each prompt, `num_sequences` times.

    A sample depends on its prompt, its number and the seed alone, but for rounding. Where a model has a vector for each
    position, a text ends with the last of them.

    Args:
        note: told of a prompt that is too long, by its place from 0; its end is taken.
        options: of `generate`, such as a streamer.
    """
    model.eval()
    ids = [_ids(prompt, tokenizer) for prompt in prompts]
    limits = np.full(len(ids), sampling.max_new_tokens)
    if getattr(model.config, "position_embedding_type", None) == "learned" or model.config.model_type == "gpt2":
        longest = longest_sequence(model)
        ids = [_cut(index, own, longest, sampling, note) for index, own in enumerate(ids)]
        limits = np.minimum(limits, [longest - len(own) for own in ids])
    lengths = np.array([len(own) for own in ids], dtype=np.int64) + limits
    found: list[list[Continuation]] = [[] for _ in prompts]
    budget = max(1, TOKENS_PER_BATCH // sampling.num_sequences)
    for limit in np.unique(limits):
        alike = np.flatnonzero(limits == limit)
        for batch in token_budget_batches(lengths[alike], budget, np.random.default_rng(0)):
            rows = alike[batch]
            own = [ids[row] for row in rows]
            output = _generate(model, tokenizer, own, int(limit), sampling, **options)
            heads = tokenizer.batch_decode(own, skip_special_tokens=True)
            for place, sequence in enumerate(output):
                number = place // sampling.num_sequences
                behind_filling = sequence[max(map(len, own)) - len(own[number]) :]
                (text,) = tokenizer.batch_decode(behind_filling[None], skip_special_tokens=True)
                written = text.removeprefix(heads[number])
                found[rows[number]].append(Continuation(heads[number], _until(written, sampling.stop)))
    return found


def _ids(prompt: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """As in training, where every text begins with <s>."""
    ids: list[int] = tokenizer(prompt, add_special_tokens=False).input_ids
    return ids if tokenizer.bos_token_id is None else [tokenizer.bos_token_id, *ids]


def _cut(index: int, ids: list[int], longest: int, sampling: Sampling, note: Notes) -> list[int]:
    """Of a prompt that leaves no room for a token its end, behind which all that is wanted has room, or half of it."""
    if len(ids) < longest:
        return ids
    room = max(longest - sampling.max_new_tokens, longest // 2)
    note(index, f"it has {len(ids):,} tokens, and there is room for {room:,}: only its end was read")
    return ids[-room:]


def _generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    sampling: Sampling,
    **options: Any,
) -> Tensor:
    """Prompts, filled up on the left, and what was written behind them: (N num_sequences, T)."""
    longest = max(map(len, prompts))
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    # By a token that is in the prompt already: a penalty on repetition looks at these too.
    rows = [[*[ids[0]] * (longest - len(ids)), *ids] for ids in prompts]
    masks = [[*[0] * (longest - len(ids)), *[1] * len(ids)] for ids in prompts]
    each = sampling.num_sequences
    processors = LogitsProcessorList()
    if sampling.temperature > 0:
        if sampling.temperature != 1:
            processors.append(TemperatureLogitsWarper(float(sampling.temperature)))
        if sampling.top_k:
            processors.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            processors.append(TopPLogitsWarper(sampling.top_p))
        processors.append(DrawnTokens(prompts, each, sampling.max_new_tokens, sampling.seed, longest))
    stop = [StopStrings(sampling.stop, tokenizer, longest)] if sampling.stop else []
    return generate(
        model,
        input_ids=torch.tensor(rows, device=model.device).repeat_interleave(each, 0),
        attention_mask=torch.tensor(masks, device=model.device).repeat_interleave(each, 0),
        num_beams=1,
        do_sample=False,
        repetition_penalty=sampling.repetition_penalty,
        logits_processor=processors,
        stopping_criteria=StoppingCriteriaList(stop),
        max_new_tokens=max_new_tokens,
        pad_token_id=pad_id,
        **options,
    )


def _until(text: str, strings: Sequence[str]) -> str:
    """What is before the first of some strings."""
    ends = [place for string in strings if (place := text.find(string)) >= 0]
    return text[: min(ends)] if ends else text
