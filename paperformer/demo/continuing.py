"""A text continued token by token, with what else might have come, while temperature and nucleus can be changed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..serving.engines.incremental_text import IncrementalText
from ..serving.engines.sampling import nucleus
from ..tokenization.report import TokenText
from ..training.console.input_error import InputError
from ..training.evaluation.decoding import longest_sequence
from ..translation.likelihood import end_tokens

CANDIDATES = 10


@dataclass
class Dials:
    """How the next token is chosen; may be turned while a text is written."""

    temperature: float = 0.8
    """Divides the logits; 0 takes the likeliest token."""

    top_p: float = 0.95
    """Of the smallest set of tokens that has this probability (Holtzman et al. 2019, section 3.1)."""

    is_stopped: bool = False
    """Whether nobody wants more."""


@dataclass(frozen=True)
class Candidate:
    """A token that may come next."""

    label: str

    probability: float
    """By the model itself, at a temperature of 1."""

    chance: float
    """By the dials: that it is drawn."""


@dataclass(frozen=True)
class Step:
    """A token that was written."""

    text: str
    """What it adds to the text; nothing of bytes that are no whole character yet."""

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    """The likeliest tokens, the likeliest first; the chosen one may not be among them."""

    is_end: bool = False
    """Whether the model ends the text with it."""


def continue_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    dials: Dials,
    *,
    max_new_tokens: int,
    seed: int,
) -> Iterator[Step]:
    """The tokens that a language model writes behind a prompt, until it ends the text, or is stopped.

    A text that is as long as the model was made for ends there; of a longer prompt the end is read.

    Args:
        dials: looked at before each token.
        seed: of the draws; the same dials all along then give the same text.

    Raises:
        InputError: if there is nothing to begin with.
    """
    marks = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    ids = [*marks, *tokenizer(prompt, add_special_tokens=False, verbose=False).input_ids]
    if not ids:
        raise InputError("there is no text to continue; type some")
    longest = longest_sequence(model)
    ids = ids[-max(longest - max_new_tokens, longest // 2) :] if len(ids) >= longest else ids

    def decode(some: Sequence[int]) -> str:
        return str(tokenizer.decode(list(some), skip_special_tokens=True))

    labels, growing, ends = TokenText(tokenizer), IncrementalText(decode, ids), set(end_tokens(model))
    generator, cache, read = torch.Generator().manual_seed(seed), None, ids
    for _ in range(min(max_new_tokens, longest - len(ids))):
        if dials.is_stopped:
            return
        logits, cache = _read(model, read, cache)
        chosen, best, probabilities, chances = choose(logits, dials.temperature, dials.top_p, generator)
        shown = labels.all_shown([chosen, *best])
        found = [
            Candidate(label, float(probabilities[id_]), float(chances[id_]))
            for label, id_ in zip(shown, [chosen, *best], strict=True)
        ]
        if chosen not in ends:
            growing.add([chosen])
        yield Step(growing.take(), found[0], tuple(found[1:]), chosen in ends)
        if chosen in ends:
            return
        read = [chosen]


def choose(
    logits: Tensor, temperature: float, top_p: float, generator: torch.Generator
) -> tuple[int, list[int], Tensor, Tensor]:
    """Draws a token from logits, (V,).

    Returns:
        The token, the likeliest tokens, the probabilities by the model and those by which it was drawn, (V,).
    """
    probabilities = logits.softmax(-1)
    best = probabilities.topk(min(CANDIDATES, len(logits))).indices.tolist()
    if temperature == 0:
        chances = torch.zeros_like(probabilities)
        chances[best[0]] = 1.0
        return best[0], best, probabilities, chances
    chances = nucleus(logits[None] / temperature, torch.tensor([[top_p]])).softmax(-1)[0]
    drawn = int(torch.multinomial(chances, 1, generator=generator))
    return drawn, best, probabilities, chances


@torch.no_grad()
def _read(model: PreTrainedModel, ids: Sequence[int], cache: Any) -> tuple[Tensor, Any]:
    """Logits of the next token, (V,), on the processor, and the cache behind them."""
    output = model(input_ids=torch.tensor([list(ids)], device=model.device), past_key_values=cache, use_cache=True)
    return output.logits[0, -1].float().cpu(), output.past_key_values
