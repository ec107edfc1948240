"""Translation, whatever computes it: options, pieces of texts, and which of them can share a batch."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from transformers import PreTrainedTokenizerBase

from ...decoding.languages import language_marks
from ...pieces import split_to_fit
from ...training.evaluation.decoding import length_class, longest_translation
from .engine import Task


@dataclass(frozen=True, kw_only=True)
class TranslationOptions:
    """How a text is translated."""

    num_beams: int = 5
    length_penalty: float = 1.0
    num_return_sequences: int = 1
    max_new_tokens: int | None = None
    """Longest translation of a piece; None: what its length calls for."""
    with_scores: bool = False
    first_token: int | None = None
    """The mark of the language that is written; None: what the model does without being told."""


@dataclass(frozen=True)
class Piece:
    """A text, or a part of a longer one, and how to translate it."""

    ids: tuple[int, ...]
    options: TranslationOptions


@dataclass(frozen=True)
class Translation:
    """A translation of a piece."""

    text: str
    tokens: int
    """Its tokens, the end mark included."""
    score: float | None = None
    """The log-probability of its tokens, over their number to the power of the length penalty."""


class TranslationEngine:
    """An engine for translation, but for `run`, which finishes each task with a list of `Translation`, the best first.

    Args:
        tokenizer: of sources, and of translations where there is no other.
        target_tokenizer: of translations, for a model with two vocabularies.
        longest_sequence: tokens that the model takes and writes.
    """

    task = "translation"

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None,
        longest_sequence: int,
    ):
        self.tokenizer, self.target_tokenizer = tokenizer, target_tokenizer or tokenizer
        self.longest_sequence = longest_sequence
        self.longest = min(tokenizer.model_max_length, longest_sequence)
        self.languages = language_marks(tokenizer)
        """The languages that a request can name, and the tokens that mark them."""
        self.needs_target = False
        """Whether it has to."""
        self._source_language: str = getattr(tokenizer, "src_lang", "")
        self._lock = Lock()  # a tokenizer must not be used by two threads at once

    def encode(self, texts: Sequence[str], src_lang: str = "") -> list[list[int]]:
        """The tokens of texts, with the end mark, and that of their language, if the model has several."""
        with self._lock:
            untyped: Any = self.tokenizer
            if self.languages and untyped.src_lang != (src_lang or self._source_language):
                untyped.src_lang = src_lang or self._source_language
            return self.tokenizer(list(texts), verbose=False).input_ids if texts else []

    def pieces(self, text: str, prefix: str, options: TranslationOptions, src_lang: str = "") -> list[Piece]:
        """What a text is translated in: itself if the model takes it, as `paperformer translate` has it; none if it is
        without characters."""
        if not text.strip():
            return []

        def lengths(parts: Sequence[str]) -> list[int]:
            return [len(ids) for ids in self.encode([prefix + part for part in parts], src_lang)]

        (whole,) = self.encode([prefix + text], src_lang)
        parts = [whole]
        if len(whole) > self.longest:
            own = split_to_fit(text, self.longest, lengths)
            parts = [ids[: self.longest] for ids in self.encode([prefix + part for part in own], src_lang)]
        return [Piece(tuple(ids), options) for ids in parts]

    def kind(self, work: Piece) -> Hashable:
        """The options, and how long a translation may become: so it is the same in any batch, but for rounding."""
        longest = longest_translation(len(work.ids), self.longest_sequence)
        asked = work.options.max_new_tokens
        options = replace(work.options, max_new_tokens=longest if asked is None else min(asked, longest))
        return options, length_class(len(work.ids))

    def cost(self, work: Piece) -> int:
        """Tokens of the source, once a beam."""
        return len(work.ids) * max(work.options.num_beams, work.options.num_return_sequences)

    def decode(self, rows: list[list[int]]) -> list[str]:
        """The texts of translations, without marks."""
        with self._lock:
            return self.target_tokenizer.batch_decode(rows, skip_special_tokens=True)

    def run(self, tasks: Sequence[Task]) -> None:
        """Finishes tasks of one kind."""
        raise NotImplementedError
