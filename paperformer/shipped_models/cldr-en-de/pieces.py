"""Texts in pieces that a model translates well: lines, sentences, and parts of sentences that are longer than it takes.

This file travels with every translation model, beside the pipeline (see `pipeline_translation`), so it imports nothing
of ours.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

Lengths = Callable[[Sequence[str]], list[int]]
"""How many tokens each of some texts has, all marks included."""

SENTENCE_END = re.compile(r"([.!?…]+)['\"’”»)\]]*\s+|[。！？]+[」』’”）]*\s*|\n+")
NO_SENTENCE_END = re.compile(
    r"(?<![^\s(\[\"'„“‚‘«])(?:"
    r"[^\W\d_]|\d{1,2}"  # an initial, or the like of `z. B.`; an ordinal, or the number of an item
    r"|Mr|Mrs|Ms|Dr|Prof|St|Hr|Fr|Mme|Mlle|Sr|Sra|Dra"  # what stands before a name
    r"|Nr|Abb|Fig|Bd|Kap|vol|pp|vs|cf|vgl|bzw|ca|e\.g|i\.e)$",
    re.IGNORECASE,
)
"""Before a single point: what does not end a sentence there."""
CLAUSE_END = re.compile(r"[,;:–—،؛]+\s+|[，；：、]\s*")
WORD_END = re.compile(r"\s+")
LINE_ENDS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


def split_text(text: str, longest: int, lengths: Lengths, *, sentences: bool = True) -> tuple[list[str], list[str]]:
    """Cuts a text into what is translated one by one, and what stands between.

    Args:
        text: any, of many lines.
        longest: of a piece, in tokens.
        lengths: counts them.
        sentences: whether each sentence is a piece, or each line that is not too long.

    Returns:
        The pieces, as `split_to_fit` has them; and the gaps, one more: white space before the first piece, between two,
        and behind the last. A line's end is never in a piece. Around lines and sentences, gaps are as they are in the
        text, or a blank where there is none; between parts of a sentence, a blank. A text without characters has
        neither pieces nor gaps.
    """
    pieces: list[str] = []
    inner = text.strip()
    if not inner:
        return [], []
    gaps = [text[: text.index(inner)]]
    for line, line_end in _lines(inner):
        for part in split_sentences(line) if sentences else [line]:
            own = split_to_fit(part, longest, lengths)
            pieces += own
            gaps += [" "] * (len(own) - 1) + [part[len(part.rstrip()) :] or " "]
        gaps[-1] = line_end
    gaps[-1] = text[len(gaps[0]) + len(inner) :]
    return pieces, gaps


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each with the white space behind it; together they are the text.

    A sentence goes on behind a mark that a small letter follows, and behind a point after an initial, an ordinal of one
    or two digits, or an abbreviation such as `Dr.`
    """
    cuts = [0, *(match.end() for match in SENTENCE_END.finditer(text) if _is_end(text, match)), len(text)]
    return [text[start:stop] for start, stop in pairwise(cuts) if start < stop]


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
        is_sentence = ends[0] is SENTENCE_END
        parts = split_sentences(text) if is_sentence else _pack(_cut_behind(ends[0], text), longest, lengths)
        rest = ends[1:]
    else:
        parts, rest = [text[: len(text) // 2], text[len(text) // 2 :]], ends
    return [piece for part in parts for piece in _split(part, longest, lengths, rest)]


def _is_end(text: str, match: re.Match[str]) -> bool:
    """Whether a sentence ends at a mark."""
    if match[1] is None:  # in a script that has a mark for nothing else, or at a line's end
        return True
    before = text[max(0, match.start() - 8) : match.start()]
    is_abbreviation = match[0].rstrip() == "." and NO_SENTENCE_END.search(before) is not None
    return not is_abbreviation and not text[match.end() : match.end() + 1].islower()


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line that is not blank, without the white space at its ends, and the line end and blank lines behind it."""
    start = 0
    for gap in WORD_END.finditer(text):
        if not LINE_ENDS.isdisjoint(gap[0]):
            yield text[start : gap.start()], gap[0]
            start = gap.end()
    yield text[start:], ""


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
