"""Continuing texts, whatever computes it: prompts with options of their own, and what comes of them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from threading import Lock

from transformers import PreTrainedTokenizerBase

from .engine import Task


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 1.0
    """Divides the logits; 0: the likeliest token."""
    top_p: float = 1.0
    """Of the smallest set of tokens that has this probability (Holtzman et al. 2019, section 3.1)."""
    seed: int = 0


@dataclass(frozen=True)
class Prompt:
    """Tokens, and how they are to be continued."""

    ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stops: tuple[str, ...] = ()
    logprobs: int | None = None
    """How many of the likeliest tokens are told at each place, besides the chosen one; None: not even that."""
    is_streamed: bool = False


@dataclass(frozen=True)
class TokenChoice:
    """A token of a continuation, and what might have been there."""

    token: str
    logprob: float
    top: dict[str, float]


@dataclass(frozen=True)
class Continuation:
    """What has come of a prompt."""

    text: str
    finish_reason: str
    """stop, at the end mark or a stop text; length."""
    tokens: int
    choices: tuple[TokenChoice, ...] = ()
    """Where `logprobs` are wanted: of every token, that of a stop text included."""


class TextEngine:
    """An engine for continuing texts, but for `run`, which shows each task its text, if that is wanted, and finishes it
    with a `Continuation` as soon as it is there.

    Args:
        tokenizer: the model's.
        longest_sequence: tokens that the model takes, those that it writes included.
        vocab_size: how many tokens there are.
    """

    task = "text-generation"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, longest_sequence: int, vocab_size: int):
        self.tokenizer, self.vocab_size = tokenizer, vocab_size
        self.longest = min(tokenizer.model_max_length, longest_sequence)
        self._lock = Lock()  # a tokenizer must not be used by two threads at once

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts behind the mark with which every text begins in training."""
        with self._lock:
            ids = self.tokenizer(list(texts), add_special_tokens=False, verbose=False).input_ids if texts else []
        begin = [] if self.tokenizer.bos_token_id is None else [self.tokenizer.bos_token_id]
        return [begin + row for row in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without marks."""
        with self._lock:
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def token(self, number: int) -> str:
        """A token by itself, be it a mark."""
        with self._lock:
            return str(self.tokenizer.decode([number]))

    def kind(self, work: Prompt) -> Hashable:
        """All are of one kind: what they differ in, each row has for itself."""
        return self.task

    def cost(self, work: Prompt) -> int:
        """Tokens of the prompt and of the longest continuation."""
        return len(work.ids) + work.max_tokens

    def run(self, tasks: Sequence[Task]) -> None:
        """Finishes tasks of one kind."""
        raise NotImplementedError
