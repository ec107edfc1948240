"""Filling in masks, whatever computes it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from threading import Lock

from transformers import PreTrainedTokenizerBase

from .engine import Task


@dataclass(frozen=True)
class MaskedText:
    """A text with masks in it."""

    ids: tuple[int, ...]
    top_k: int


@dataclass(frozen=True)
class Filling:
    """What may stand at a mask."""

    token: str
    probability: float


class MaskEngine:
    """An engine for masks, but for `run`, which finishes each task with lists of `Filling`, one a mask.

    Args:
        tokenizer: the model's, with a mask.
        longest_sequence: tokens that the model takes.
    """

    task = "fill-mask"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, longest_sequence: int):
        self.tokenizer, self.mask = tokenizer, str(tokenizer.mask_token)
        self.longest = min(tokenizer.model_max_length, longest_sequence)
        self._lock = Lock()  # a tokenizer must not be used by two threads at once

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts, with the marks around them."""
        with self._lock:
            return self.tokenizer(list(texts), verbose=False).input_ids if texts else []

    def count_masks(self, ids: Sequence[int]) -> int:
        """How many of the tokens are masks."""
        return list(ids).count(self.tokenizer.mask_token_id)

    def kind(self, work: MaskedText) -> Hashable:
        """All are of one kind."""
        return self.task

    def cost(self, work: MaskedText) -> int:
        """Tokens of the text."""
        return len(work.ids)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Tokens by themselves."""
        with self._lock:
            return [str(self.tokenizer.decode([token])) for token in ids]

    def run(self, tasks: Sequence[Task]) -> None:
        """Finishes tasks of one kind."""
        raise NotImplementedError
