"""Texts longer than a model takes, in pieces that it does: sentences, and of those that are still too long, parts."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Notes = Callable[[int, str], None]
"""Told the number of a text and what had to be done with it."""

Lengths = Callable[[Sequence[str]], list[int]]
"""How many tokens each of some texts has, all marks included."""

SENTENCE_END = re.compile(r"[.!?…]+['\"’”»)\]]*\s+|[。！？]+[」』’”）]*\s*|\n+")
CLAUSE_END = re.compile(r"[,;:–—،؛]+\s+|[，；：、]\s*")
WORD_END = re.compile(r"\s+")


@dataclass(frozen=True)
class Piece:
    """A text that is translated at once, or a part of one."""

    text: str

    owner: int
    """Which of the texts it is of."""

    is_first: bool
    """Whether the text begins with it."""

    first_word: int
    """Which word of the text its first one is, from 0, or belongs to; words are what white space separates."""


def cut_texts(
    texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", longest: int, prefix: str, note: Notes
) -> list[Piece]:
    """Texts as they can be translated: those that are too long in pieces, those without characters not at all.

    Args:
        longest: in tokens, those of the prefix included.
        prefix: what every piece is to stand behind.
        note: told of a text that is too long, by its place from 0.
    """

    def lengths(parts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in tokenizer([prefix + part for part in parts], verbose=False).input_ids]

    filled = [index for index, text in enumerate(texts) if text.strip()]
    counted = zip(filled, lengths([texts[index] for index in filled]) if filled else [], strict=True)
    pieces: list[Piece] = []
    for index, length in counted:
        if length <= longest:
            pieces.append(Piece(texts[index], index, True, 0))
            continue
        parts = split_to_fit(texts[index], longest, lengths)
        note(index, f"it has {length:,} tokens, and the model takes {longest:,}: translated in {len(parts):,} pieces")
        end = 0
        for part in parts:
            start = texts[index].index(part, end)
            is_within_a_word = start > 0 and not texts[index][start - 1].isspace()
            first_word = len(texts[index][:start].split()) - is_within_a_word
            pieces.append(Piece(part, index, end == 0, first_word))
            end = start + len(part)
    return pieces


def split_to_fit(text: str, longest: int, lengths: Lengths) -> list[str]:
    """Cuts a text where that hurts least: behind sentences; else behind clauses, words, or anywhere.

    Sentences come one by one, as a translation model knows them; clauses and words as many together as fit.

    Args:
        text: any.
        longest: in tokens.
        lengths: counts them.

    Returns:
        The pieces, without white space at their ends, of `longest` tokens at most; together they are the text. A
        character that has more tokens by itself is a piece.
    """
    return [piece for piece in _split(text, longest, lengths, [SENTENCE_END, CLAUSE_END, WORD_END]) if piece]


def _split(text: str, longest: int, lengths: Lengths, ends: list[re.Pattern[str]]) -> list[str]:
    text = text.strip()
    if len(text) < 2 or lengths([text])[0] <= longest:
        return [text]
    if ends:
        parts = _cut_behind(ends[0], text)
        if ends[0] is not SENTENCE_END:
            parts = _pack(parts, longest, lengths)
        rest = ends[1:]
    else:
        parts, rest = [text[: len(text) // 2], text[len(text) // 2 :]], ends
    return [piece for part in parts for piece in _split(part, longest, lengths, rest)]


def _cut_behind(end: re.Pattern[str], text: str) -> list[str]:
    cuts = [0, *(match.end() for match in end.finditer(text)), len(text)]
    return [text[start:stop] for start, stop in pairwise(cuts) if start < stop]


def _pack(parts: list[str], longest: int, lengths: Lengths) -> list[str]:
    """Joins neighbours while their tokens, counted one by one, fit together."""
    packed: list[str] = []
    used = longest + 1
    marks = lengths([""])[0]  # which each part is counted with, and the whole has once
    for part, length in zip(parts, lengths(parts), strict=True):
        if used + length - marks <= longest:
            packed[-1] += part
            used += length - marks
        else:
            packed.append(part)
            used = length
    return packed
