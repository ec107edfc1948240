"""The translations that a beam search ends with, token by token, and the tree in which they part.

Shapes: n translations, T tokens of the longest, S source tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any

import torch

from ..decoding.translator import Translator
from ..pipeline_translation import LANGUAGE_TAG
from ..training.console.input_error import InputError
from ..training.evaluation.decoding import generate, source_batches
from ..translation.cutting import cut_texts
from ..translation.likelihood import end_tokens, until_end
from .tokens import Token, Word, group_words, read_tokens


@dataclass(frozen=True, kw_only=True)
class Translation:
    """One that the search has found."""

    text: str

    ids: tuple[int, ...]
    """Without the mark that begins them, with the end mark."""

    tokens: tuple[Token, ...]

    probabilities: tuple[float, ...]
    """Of each token, given those before it and the source."""

    log_probability: float
    """The sum over the tokens, in nats."""

    score: float
    """The log-probability over the number of tokens to the power of the length penalty."""

    @property
    def words(self) -> list[tuple[Word, float]]:
        """Its words and marks, and how sure the model is of each: the product of its tokens' probabilities."""
        found = []
        for word in group_words(self.tokens):
            probability = 1.0
            for place in word.places:
                probability *= self.probabilities[place]
            found.append((word, probability))
        return found


@dataclass(frozen=True)
class SearchedText:
    """A text, and its translations by one model."""

    source_ids: tuple[int, ...]
    source: tuple[Token, ...]

    translations: tuple[Translation, ...]
    """The best first."""


def cut_source(translator: Translator, text: str, prefix: str = "") -> list[str]:
    """The text in pieces that the model takes; one, unless it is longer than that.

    Raises:
        InputError: if it has no characters.
    """
    pieces = cut_texts([text], translator.tokenizer, translator.longest, prefix, lambda *_: None)
    if not pieces:
        raise InputError("there is no text to translate")
    return [piece.text for piece in pieces]


def find_language_tags(tokenizer: Any) -> tuple[str, ...]:
    """The tags by which a model is told into which language it is to translate (`<2de>`); none where it has none."""
    return tuple(sorted(filter(LANGUAGE_TAG.fullmatch, tokenizer.get_vocab())))


@torch.no_grad()
def search_text(
    translator: Translator,
    text: str,
    *,
    num_beams: int = 5,
    n_best: int = 5,
    length_penalty: float = 1.0,
    prefix: str = "",
) -> SearchedText:
    """The best translations of one text that is no longer than the model takes.

    Their probabilities are computed once more, by teacher forcing, as those of `decoding.search` are.

    Args:
        num_beams: of the search.
        n_best: how many translations, at most as many as there are beams.
        length_penalty: exponent of the length by which a log-probability is divided.
        prefix: put before the text.
    """
    from ..decoding.search import teacher_forced

    model, writer = translator.model.eval(), translator.writer
    (batch,) = source_batches(
        model, translator.tokenizer, [prefix + text], max_length=translator.longest, hypotheses=num_beams
    )
    sequences = generate(
        model,
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        num_beams=num_beams,
        num_return_sequences=min(n_best, num_beams),
        length_penalty=length_penalty,
        do_sample=False,
        max_new_tokens=batch.max_new_tokens,
    )  # (n, 1 + T)
    is_written = until_end(sequences[:, 1:], end_tokens(model))
    log_probs = teacher_forced(model, batch, sequences)
    found: list[Translation] = []
    for row, keep in enumerate(is_written):
        ids, own = sequences[row, 1:][keep].tolist(), log_probs[row][keep]
        if found and ids[0] == writer.pad_token_id:  # it stands in for one that was not found
            continue
        total = float(own.double().sum())
        found.append(
            Translation(
                text=str(writer.decode(ids, skip_special_tokens=True)),
                ids=tuple(ids),
                tokens=tuple(read_tokens(writer, ids)),
                probabilities=tuple(own.exp().tolist()),
                log_probability=total,
                score=total / len(ids) ** length_penalty,
            )
        )
    source_ids = tuple(batch.input_ids[0].tolist())
    return SearchedText(source_ids, tuple(read_tokens(translator.tokenizer, source_ids)), tuple(found))


@dataclass(frozen=True)
class Branch:
    """Tokens that some translations share, and how they go on."""

    tokens: tuple[Token, ...]
    probabilities: tuple[float, ...]

    best: int
    """The best translation that it is part of: its place, from 0."""

    branches: tuple["Branch", ...] = ()
    """Where they part, the one with the best translation first; none where a translation ends."""


def grow_tree(translations: Sequence[Translation]) -> Branch:
    """The tree of translations that begin alike."""
    return _grow(list(enumerate(translations)), 0)


def _grow(rows: list[tuple[int, Translation]], start: int) -> Branch:
    best, first = rows[0]
    shared = sum(1 for _ in takewhile(_is_one, zip(*(own.ids[start:] for _, own in rows), strict=False)))
    end = start + shared
    going_on = [(own.ids[end : end + 1], (number, own)) for number, own in rows]
    parts = [[row for _, row in group] for _, group in groupby(sorted(going_on, key=itemgetter(0)), key=itemgetter(0))]
    branches = () if len(parts) == 1 else tuple(_grow(part, end) for part in sorted(parts, key=lambda part: part[0][0]))
    return Branch(first.tokens[start:end], first.probabilities[start:end], best, branches)


def _is_one(column: tuple[int, ...]) -> bool:
    return len(set(column)) == 1
