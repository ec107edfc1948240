"""A text with white space, line ends and inline codes, as the lines to translate that are in it.

What inline codes do to a model that has never seen any is measured by `benchmarks/inline_elements.py`: marks such as
`<1>` or `X1` are lost, and the rest of the sentence with them (17 to 34 BLEU instead of 44); cut into segments at the
codes, a sentence is no sentence any more (18 BLEU). So codes are taken out, the whole sentence is translated, and they
are put back: those at its ends where they were, which is exact, those inside around the words that the model aligns
with those they stood around (99 % of nouns are inside then), or else in proportion, between words (61 %). All are kept,
in their order; of those inside somebody should see whether they stand where they belong.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...training.data.text.placeholders import Difference, find_difference
from ..line_source import UNWANTED, without_control_characters

_XML_SPACE = re.compile(r"[ \t\r\n]+")
_NOT_XML = re.compile("[\ufffe\uffff\ud800-\udfff]")


@dataclass(frozen=True)
class Code:
    """An inline code: what the text has at a place besides its characters."""

    raw: str
    """As it is written."""

    kind: Literal["open", "close", "alone"] = "alone"

    is_boundary: bool = False
    """Whether what is before it and what is behind it are translated apart."""


Token = str | Code


class TextWithCodes(str):
    """A text to be translated that has codes inside: it should become an `AlignedText`."""


class AlignedText(str):
    """A translation that knows which of its words belong to which of the source's, as pairs of their places from 0."""

    alignment: Sequence[tuple[int, int]]

    def __new__(cls, text: str, alignment: Sequence[tuple[int, int]]) -> "AlignedText":
        """Of the translation and its alignment."""
        own = super().__new__(cls, text)
        own.alignment = alignment
        return own

    def __getnewargs__(self) -> tuple[str, Sequence[tuple[int, int]]]:  # type: ignore[override]
        return str(self), self.alignment  # it comes from another process


@dataclass
class _Piece:
    """What is translated at once, and what stands before and behind it."""

    before: list[Token] = field(default_factory=list)
    middle: list[Token] = field(default_factory=list)
    behind: list[Token] = field(default_factory=list)
    text: str = ""


class MarkedText:
    """A text, cut into what is translated at once: its lines, and what is between boundaries.

    Args:
        tokens: the text, with codes between its parts.
        keeps_lines: whether white space is part of the text; else, as in XML by default, all of it stands for a blank,
            and the text is one line.
    """

    def __init__(self, tokens: Sequence[Token], *, keeps_lines: bool = True):
        self.faults: list[str] = []
        """What had to be left out of its lines."""
        self._pieces = [_take_apart(group, keeps_lines, self.faults) for group in _divide(tokens, keeps_lines)]
        self.texts = [piece.text for piece in self._pieces if piece.text]
        """What is to be translated."""
        self._source = text_of(tokens)
        self._is_aligned = True

    def fill(self, translations: Sequence[str]) -> list[Token]:
        """The text with the translations of `texts` in their places."""
        found = iter(translations)
        tokens: list[Token] = []
        for piece in self._pieces:
            tokens += piece.before
            if piece.text:
                raw = next(found)
                translation = _NOT_XML.sub("", UNWANTED.sub(" ", raw)).strip()
                is_same = isinstance(raw, AlignedText) and len(raw.split()) == len(translation.split())
                pairs = raw.alignment if isinstance(raw, AlignedText) and is_same else []
                wanted = _aligned_places(piece.middle, piece.text, translation, pairs)
                self._is_aligned &= None not in wanted.values()
                tokens += _put_back(piece.middle, translation, wanted)
            tokens += piece.behind
        return tokens

    def review(self, tokens: Sequence[Token]) -> list[Difference]:
        """Why somebody should look at what `fill` has made of it."""
        translation = text_of(tokens)
        found = []
        if self.texts and not translation.strip():
            found.append(Difference("empty translations", "the model has written nothing"))
        elif difference := find_difference(self._source, translation):
            found.append(difference)
        if any(isinstance(token, Code) for piece in self._pieces for token in piece.middle):
            by_words, by_place = "around the words that the model aligns", "in proportion to where the source has them"
            how = by_words if self._is_aligned else by_place
            found.append(Difference("inline elements placed by estimate", how))
        return found


def text_of(tokens: Sequence[Token]) -> str:
    """The characters without the codes."""
    return "".join(token for token in tokens if isinstance(token, str))


def _divide(tokens: Sequence[Token], keeps_lines: bool) -> Iterator[list[Token]]:
    """Groups of tokens, each with one line at the most that has text."""
    group: list[Token] = []
    for token in tokens:
        if isinstance(token, Code):
            group.append(token)
            if token.is_boundary:
                yield group
                group = []
        elif keeps_lines:
            *lines, last = token.split("\n")
            for line in lines:
                yield [*group, line, "\n"]
                group = []
            group.append(last)
        else:
            group.append(token)
    yield group


def _take_apart(group: list[Token], keeps_lines: bool, faults: list[str]) -> _Piece:
    piece = _Piece()
    filled = [place for place, token in enumerate(group) if isinstance(token, str) and token.strip()]
    if not filled:
        piece.before = group
        return piece
    first, last = filled[0], filled[-1]
    middle = group[first : last + 1]
    head, tail = str(middle[0]), str(middle[-1])
    piece.before = [*group[:first], head[: len(head) - len(head.lstrip())]]
    piece.behind = [tail[len(tail.rstrip()) :], *group[last + 1 :]]
    middle[0] = str(middle[0]).lstrip()
    middle[-1] = str(middle[-1]).rstrip()
    for place, token in enumerate(middle):
        if isinstance(token, str):
            cleaned = token if keeps_lines else _XML_SPACE.sub(" ", token)
            piece.middle.append(without_control_characters(_NOT_XML.sub("", cleaned), faults))
        else:
            piece.middle.append(middle[place])
    if len(middle) > 1:
        piece.text = TextWithCodes(_without_double_blanks(piece.middle))
    else:
        piece.text = text_of(piece.middle)
    return piece


def _without_double_blanks(middle: Sequence[Token]) -> str:
    """The text of some tokens; of the blanks on both sides of a code, one."""
    text = ""
    for token in middle:
        if isinstance(token, str):
            text += token.lstrip() if text.endswith(" ") else token
    return text


def _aligned_places(
    middle: Sequence[Token], text: str, translation: str, alignment: Sequence[tuple[int, int]]
) -> dict[int, int | None]:
    """Where codes belong in a translation, by its alignment with the text: place in `middle` -> character.

    A pair of codes goes around all words that belong to words between them, a code that stands alone in front of those
    of the next word. None where nothing belongs to those words.
    """
    words, targets = ([found.span() for found in re.finditer(r"\S+", each)] for each in (text, translation))
    ends = [len(_without_double_blanks(middle[: place + 1])) for place in range(len(middle))]

    def span(start: int, end: int) -> tuple[int, int] | None:
        """The characters of the translation that belong to some of the text, without marks at the ends of its words
        that the text has not, such as a full stop."""
        inside = {place for place, (first, last) in enumerate(words) if first < end and last > start}
        found = sorted(target for source, target in alignment if source in inside and target < len(targets))
        if not found:
            return None
        first, last = targets[found[0]][0], targets[found[-1]][1]
        marked = text[start:end].strip()
        while marked[:1].isalnum() and first < last - 1 and not translation[first].isalnum():
            first += 1
        while marked[-1:].isalnum() and last > first + 1 and not translation[last - 1].isalnum():
            last -= 1
        return first, last

    places: dict[int, int | None] = {place: None for place, token in enumerate(middle) if isinstance(token, Code)}
    open_codes: list[int] = []
    for place, token in enumerate(middle):
        if isinstance(token, str):
            continue
        own: tuple[int, int] | None
        if token.kind == "open":
            open_codes.append(place)
        if token.kind == "close" and open_codes:
            opened = open_codes.pop()
            own = span(ends[opened], ends[place])
            places[opened] = None if own is None else own[0]
        elif token.kind == "close":
            own = span(max(0, ends[place] - 1), ends[place])
        else:
            following = next((first for first, last in words if last > ends[place]), len(text))
            own = span(following, following + 1)
            places[place] = None if own is None else own[0]
        if token.kind == "close":
            places[place] = None if own is None else own[1]
    return places


def _put_back(middle: Sequence[Token], translation: str, wanted: Mapping[int, int | None]) -> list[Token]:
    """The codes of a text at their places in its translation; those that are wanted, or else in proportion."""
    whole = sum(len(token) for token in middle if isinstance(token, str))
    tokens: list[Token] = []
    passed = cut = 0
    for place, token in enumerate(middle):
        if isinstance(token, str):
            passed += len(token)
            continue
        sides = middle[place - 1], middle[place + 1]
        is_word = token.kind == "alone" and [str(sides[0])[-1:], str(sides[1])[:1]] == [" ", " "]
        if (best := wanted.get(place)) is None:
            best = round(passed / whole * len(translation))
        end = _find_place(translation, best, "open" if is_word else token.kind, cut)
        at_end = end == len(translation)
        tokens += [
            translation[cut:end],
            " " if is_word and at_end else "",
            token,
            " " if is_word and not at_end else "",
        ]
        cut = end
    return [token for token in [*tokens, translation[cut:]] if token]


def _find_place(text: str, wanted: int, kind: str, least: int) -> int:
    """Where in a text a code belongs: nearest to the place that is wanted, and between words."""
    fallback: int | None = None
    for place in _by_distance(wanted, least, len(text)):  # the end of the text is never inside a word
        if _is_inside_word(text, place):
            continue
        beside = text[place : place + 1] if kind == "open" else text[max(0, place - 1) : place]
        if not beside.isspace():
            return place
        fallback = place if fallback is None else fallback
    return len(text) if fallback is None else fallback


def _by_distance(wanted: int, least: int, most: int) -> Iterator[int]:
    """Places from `least` to `most`, those nearest to the one that is wanted first, of two the lower."""
    below = min(wanted, most)
    above = max(below + 1, least)
    while below >= least or above <= most:
        if above > most or (below >= least and wanted - below <= above - wanted):
            yield below
            below -= 1
        else:
            yield above
            above += 1


def _is_inside_word(text: str, place: int) -> bool:
    if not 0 < place < len(text):
        return False
    here, there = text[place - 1], text[place]
    if unicodedata.combining(there):
        return True
    is_wide = unicodedata.east_asian_width(here) in "WF" or unicodedata.east_asian_width(there) in "WF"
    return here.isalnum() and there.isalnum() and not is_wide
