"""A model that translates, with what it reads and writes by."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Translator:
    """A model, or an ensemble, and its tokenizers."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    target_tokenizer: "PreTrainedTokenizerBase | None" = None

    @property
    def writer(self) -> "PreTrainedTokenizerBase":
        """The tokenizer of what the model writes."""
        return self.target_tokenizer or self.tokenizer

    @property
    def longest(self) -> int:
        """Tokens of the longest source."""
        from ..training.evaluation.decoding import longest_sequence

        return min(self.tokenizer.model_max_length, longest_sequence(self.model))

    @cached_property
    def word_continuations(self) -> "Tensor":
        """Which tokens go on with the word before them, (V,), of bool."""
        from .glossary import word_continuations

        return word_continuations(self.writer, self.model.config.vocab_size).to(self.model.device)
