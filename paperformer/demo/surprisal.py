"""How much each token of a text surprises a language model."""

import math
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..training.console.input_error import InputError
from ..training.data.batches.packing import evaluation_windows
from ..training.evaluation.decoding import longest_sequence
from ..translation.likelihood import log_probabilities
from .tokens import Token, read_tokens

MOST_TOKENS = 4000
"""Of a text; of a longer one the beginning is read."""


@dataclass(frozen=True)
class Surprisals:
    """A text, and how improbable each of its tokens is after those before it."""

    tokens: list[Token]

    nats: list[float | None]
    """The negative log-probability of each; None of a first token that nothing stands before."""

    all_tokens: int
    """How many the text has; `tokens` may be fewer."""

    @property
    def perplexity(self) -> float:
        """A token: the exponential of the mean."""
        known = [value for value in self.nats if value is not None]
        return math.exp(sum(known) / max(1, len(known)))

    @property
    def bits_per_byte(self) -> float:
        """Over the text of the tokens that were predicted, in UTF-8."""
        pairs = [(token, value) for token, value in zip(self.tokens, self.nats, strict=True) if value is not None]
        size = sum(len(token.text.encode()) for token, _ in pairs)
        return sum(value for _, value in pairs) / math.log(2) / max(1, size)


@torch.no_grad()
def read_surprisals(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> Surprisals:
    """The surprisals of a text's tokens, each after at least half as many tokens as the model takes, or all there are.

    Raises:
        InputError: if it has no tokens to predict.
    """
    begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    encoded: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    ids = [*begin, *encoded[:MOST_TOKENS]]
    if len(ids) < 2:
        said = (
            "the text has one token; the model reads two and more" if encoded else "there is no text to read; type some"
        )
        raise InputError(said)
    context = min(longest_sequence(model), len(ids))
    nats: list[float | None] = [None]
    for start, end, scored in evaluation_windows(len(ids), context, context // 2):
        rows = torch.tensor([ids[start:end]], device=model.device)
        found = log_probabilities(model(input_ids=rows).logits[:, :-1], rows[:, 1:])[0]
        nats += (-found[scored - start - 1 :]).tolist()
    return Surprisals(read_tokens(tokenizer, ids[len(begin) :]), nats[len(begin) :], len(encoded))
