"""Colours in a terminal: of help and of errors.

By regular expressions, on the finished text: without the colours it is the same to the byte, whatever wrote it. rich,
or rich-argparse, would lay it out anew, and takes longer to import than all else that a list of commands needs.
"""

import os
import re
from typing import TextIO

COLOURS = {"heading": "1;34", "option": "36", "given": "1;36", "value": "33", "name": "1;32", "type": "2"}
"""What the groups of `PARTS` look like, as numbers of ECMA-48's SGR: much as argparse colours help from Python 3.14."""

PARTS = re.compile(
    r"""
    (?P<heading> ^usage: | (?<=\n\n)\S[^\n]*:$(?=\n\ \ ) )  # "options:", above its options
    | (?P<name> (?<=^\ \ )[a-z][\w.-]*(?=\ \ |\n\ {10}) )  # a command, or a word given by its place
    | (?P<type> \((?:required,\s+)?type:(?:(?!\n\n|\n\ \ -)[^()]|\([^()]*\))*\) )  # jsonargparse's, of an option
    | (?P<given> (?:(?<=^\ \ )|(?<=^\ \ -h,\ )|(?<=\],\ ))--?[a-z][\w.-]*\+? )  # an option where it is explained
    | (?P<option> (?<![\w-])--?[a-z][\w.-]*\w\+? )  # and where it is mentioned
    | (?P<value> (?<=[\w+]\ )(?:\[ITEM,...\]|\{[^{}\s]+\}|[A-Z][A-Z_0-9]+(?=[]\n,]|\ \ )) )
    """,
    re.MULTILINE | re.VERBOSE,
)


def is_coloured(stream: TextIO | None) -> bool:
    """Whether what is written there is to have colours: in a terminal that can show them, or where it is asked for.

    NO_COLOR (no-color.org) forbids them anywhere and FORCE_COLOR asks for them anywhere, if not empty.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    """Text between the escape sequences that turn a colour on, and all off again."""
    return f"\x1b[{colour}m{text}\x1b[0m"


def paint_help(text: str, stream: TextIO) -> str:
    """Help with its headings, options, values and names in colours, if the stream it is written to is to have them."""
    if not is_coloured(stream):
        return text
    return PARTS.sub(lambda part: paint(part[0], COLOURS[part.lastgroup or ""]), text)
