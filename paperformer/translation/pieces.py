"""Texts longer than a model takes, in pieces that it does: sentences, and of those that are still too long, parts."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

Lengths = Callable[[Sequence[str]], list[int]]
"""How many tokens each of some texts has, all marks included."""

SENTENCE_END = re.compile(r"[.!?…]+['\"’”»)\]]*\s+|[。！？]+[」』’”）]*\s*|\n+")
CLAUSE_END = re.compile(r"[,;:–—،؛]+\s+|[，；：、]\s*")
WORD_END = re.compile(r"\s+")


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
