"""Characters that no clean text has."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .hash_set import Mask

_NONCHARACTERS = "".join(rf"\x{{{plane:X}FFFE}}-\x{{{plane:X}FFFF}}" for plane in range(17))

# Unassigned characters in planes in use are no fault: which they are differs between versions of Unicode.
_CONTROL_CHARACTER = (
    r"[\x{00}-\x{08}\x{0B}\x{0C}\x{0E}-\x{1F}\x{7F}-\x{9F}"  # controls but tab, line feed and carriage return
    r"\x{FFFD}"  # what decoders put for bytes that they could not read
    r"\x{E000}-\x{F8FF}\x{F0000}-\x{10FFFF}"  # private use: symbols of one font, or the letters of a broken PDF
    r"\x{40000}-\x{DFFFF}"  # planes with no character at all
    rf"\x{{FDD0}}-\x{{FDEF}}{_NONCHARACTERS}]"
)


def has_control_characters(column: pa.Array) -> Mask:
    """For N texts, (N,), true where one has a control, replacement, private-use or non-character.

    Marks of direction and joining (U+200C to U+200F, U+061C, U+2066 and so on), variation selectors and tags are
    ordinary text: Persian, Hindi, Arabic and emoji need them.
    """
    return np.asarray(pc.match_substring_regex(column, _CONTROL_CHARACTER))
