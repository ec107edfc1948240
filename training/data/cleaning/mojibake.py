"""Mojibake: UTF-8 that was read as an encoding of one byte a character, "schÃ¶n" for "schön".

The verdict is that of ftfy (Speer 2019), which knows the encodings that this happens with, and which of the sequences
that come of it are unlikely in any language. It takes ten microseconds a text and more, so it is asked only about texts
in which some characters could be the bytes of one UTF-8 character.
"""

import re
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .hash_set import Mask


def is_mojibake(column: pa.Array) -> Mask:
    """For N texts, (N,), true where one looks like mojibake, and reads as text when it is decoded the other way."""
    from ftfy import fix_encoding  # here, because it takes a tenth of a second

    result = np.zeros(len(column), np.bool_)
    others = np.flatnonzero(~np.asarray(pc.string_is_ascii(column)))
    if len(others) == 0:
        return result
    texts = column.take(pa.array(others))
    could_be = np.asarray(pc.match_substring_regex(texts, _bytes_of_utf8()))
    result[others[could_be]] = [fix_encoding(text) != text for text in texts.filter(pa.array(could_be)).to_pylist()]
    return result


@cache
def _bytes_of_utf8() -> str:
    """An expression that matches the bytes of a UTF-8 character as they look in one of the encodings ftfy knows."""
    from ftfy.chardata import CHARMAP_ENCODINGS

    alternatives = ["[ÂÃ] "]  # no-break spaces are the second bytes of à and others, and often come out as spaces
    for encoding in CHARMAP_ENCODINGS:
        rest = _characters(encoding, 0x80, 0xC0)
        alternatives += [
            _characters(encoding, 0xC2, 0xE0) + rest,
            _characters(encoding, 0xE0, 0xF0) + rest * 2,
            _characters(encoding, 0xF0, 0xF5) + rest * 3,
        ]
    return "|".join(alternatives)


def _characters(encoding: str, first: int, end: int) -> str:
    return f"[{re.escape(bytes(range(first, end)).decode(encoding, 'ignore'))}]"
