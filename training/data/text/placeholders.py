"""What a translation has to keep of its source, because programs read it: placeholders, tags, numbers."""

import re
import unicodedata
from collections import Counter
from typing import NamedTuple

_PLACEHOLDERS = re.compile(
    r"""
    (?P<percent> %% )                                                # stands for itself: no placeholder
    | (?<!\d) % \( [^()]* \) [-+\#0]* [\d.]* [a-zA-Z]                # %(name)s: Python
    | (?<!\d) % (?: (?P<number> \d+ ) \$ )? [-+\#0']* (?: \d+ | \* )? (?: \. (?: \d+ | \* )? )?
        (?P<conversion> (?: hh? | ll? | [Lqjzt] )? [diouxXeEfFgGaAcspnr@] )  # %s, %1$s: C, Python, PHP
    | (?<!\d) % \d{1,2} (?!\d)                                       # %1: Qt, KDE
    | \$? \{ [\w.\[\]]* (?: ![rsa] )? (?: : [^{}]* )? \}             # {name}, {0:.2f}, ${name}: Python, shell
    | < (?P<tag> /? (?i: a | abbr | b | big | br | code | div | em | font | h[1-6] | hr | i | img | kbd | li | ol | p
        | pre | q | s | small | span | strike | strong | sub | sup | table | td | th | tr | tt | u | ul | var ) )
        (?= [\s/>] ) [^<>]* >                                        # <b>: HTML, Pango
    """,
    re.VERBOSE,
)
"""No per cent sign after a digit: 100%ig is German for entirely. No tag but HTML's: `<file>` is to be translated."""


class Difference(NamedTuple):
    """What a translation has not kept."""

    reason: str
    """In words that do not differ from text to text."""

    detail: str
    """What exactly is missing, and what is there besides."""


def find_placeholders(text: str) -> list[str]:
    """The placeholders and tags of a text, in a form that does not depend on order and layout.

    `%s %d` is `%1$s %2$d`; widths and a tag's attributes do not count.
    """
    if "%" not in text and "{" not in text and "<" not in text:
        return []
    found = []
    position = 0
    for match in _PLACEHOLDERS.finditer(text):
        if match["conversion"]:
            position += 1
            found.append(f"%{match['number'] or position}${match['conversion']}")
        elif match["tag"]:
            found.append(f"<{match['tag'].lower()}>")
        elif not match["percent"]:
            found.append(match[0])
    return found


def find_numbers(text: str) -> list[str]:
    """The groups of digits outside placeholders and tags, in ASCII: `1,000` and `1.000` have the same two."""
    groups = re.findall(r"\d+", _PLACEHOLDERS.sub(" ", text))
    return ["".join(str(unicodedata.digit(digit)) for digit in group) for group in groups]


def find_difference(source: str, translation: str) -> Difference | None:
    """The first of these that a translation has not as often as its source, in any order: placeholders, numbers."""
    for reason, find in (("other placeholders or tags", find_placeholders), ("other numbers", find_numbers)):
        here, there = Counter(find(source)), Counter(find(translation))
        if here != there:
            return Difference(reason, f"missing: {_list(here - there)}; not in the source: {_list(there - here)}")
    return None


def _list(counts: Counter[str]) -> str:
    return ", ".join(sorted(counts.elements())) or "none"
