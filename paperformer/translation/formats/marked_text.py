"""A text with white space, line ends and inline codes, as the lines to translate that are in it.

What inline codes do to a model that has never seen any is measured by `benchmarks/inline_elements.py`: marks such as
`<1>` or `X1` are lost, and the rest of the sentence with them (17 to 34 BLEU instead of 44); cut into segments at the
codes, a sentence is no sentence any more (18 BLEU). So codes are taken out, the whole sentence is translated, and they
are put back: those at its ends where they were, which is exact, those inside in proportion, between words. All are
kept, in their order; of those inside somebody should see whether they stand where they belong.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
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

    def fill(self, translations: Sequence[str]) -> list[Token]:
        """The text with the translations of `texts` in their places."""
        found = iter(translations)
        tokens: list[Token] = []
        for piece in self._pieces:
            tokens += piece.before
            if piece.text:
                translation = _NOT_XML.sub("", UNWANTED.sub(" ", next(found))).strip()
                tokens += _put_back(piece.middle, translation)
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
            found.append(Difference("inline elements placed by estimate", "in proportion to where the source has them"))
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
    piece.text = _without_double_blanks(piece.middle) if len(middle) > 1 else text_of(piece.middle)
    return piece


def _without_double_blanks(middle: Sequence[Token]) -> str:
    """The text of some tokens; of the blanks on both sides of a code, one."""
    text = ""
    for token in middle:
        if isinstance(token, str):
            text += token.lstrip() if text.endswith(" ") else token
    return text


def _put_back(middle: Sequence[Token], translation: str) -> list[Token]:
    """The codes of a text at their places in its translation."""
    whole = sum(len(token) for token in middle if isinstance(token, str))
    tokens: list[Token] = []
    passed = cut = 0
    for place, token in enumerate(middle):
        if isinstance(token, str):
            passed += len(token)
            continue
        sides = middle[place - 1], middle[place + 1]
        is_word = token.kind == "alone" and [str(sides[0])[-1:], str(sides[1])[:1]] == [" ", " "]
        end = _find_place(translation, passed / whole, "open" if is_word else token.kind, cut)
        at_end = end == len(translation)
        tokens += [
            translation[cut:end],
            " " if is_word and at_end else "",
            token,
            " " if is_word and not at_end else "",
        ]
        cut = end
    return [token for token in [*tokens, translation[cut:]] if token]


def _find_place(text: str, share: float, kind: str, least: int) -> int:
    """Where in a text a code belongs that has this share of its source before it: nearest to it, and between words."""
    wanted = round(share * len(text))
    places = [place for place in range(least, len(text) + 1) if not _is_inside_word(text, place)]
    if kind == "open":
        places = [place for place in places if not text[place : place + 1].isspace()] or places
    else:
        places = [place for place in places if not text[max(0, place - 1) : place].isspace()] or places
    return min(places, key=lambda place: abs(place - wanted), default=len(text))


def _is_inside_word(text: str, place: int) -> bool:
    if not 0 < place < len(text):
        return False
    here, there = text[place - 1], text[place]
    if unicodedata.combining(there):
        return True
    is_wide = unicodedata.east_asian_width(here) in "WF" or unicodedata.east_asian_width(there) in "WF"
    return here.isalnum() and there.isalnum() and not is_wide
