"""Hashes of sentences, by which equal ones are found: as they are, or as far as their words go.

Hashes have 64 bits (XXH3). Among n different sentences some two share a hash with a probability of about n² / 2⁶⁵:
in ten million 1 in 400,000, in a billion 1 in 37.
"""

import unicodedata

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from .hash_set import Hashes

_LOWER = bytes(range(256)).lower()
_ASCII_SEPARATORS = bytes(code for code in range(128) if unicodedata.category(chr(code))[0] in "PZC")
_SEPARATORS = r"[\pP\pZ\pC]+"
"""Punctuation, white space, and controls with the invisible marks of direction and joining; symbols stay."""

_MIXER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying by it loses nothing (Knuth's golden ratio)


def exact_hashes(column: pa.Array) -> Hashes:
    """A hash of each of N texts: (N,)."""
    return _hashes(_bytes(column))


def normalized_hashes(column: pa.Array) -> Hashes:
    """A hash of each of N texts that is the same for texts with the same words: (N,).

    Case, punctuation, white space and the compatibility forms of Unicode (NFKC) make no difference. A text of
    punctuation alone is taken as it is.
    """
    hashes = np.empty(len(column), np.uint64)
    is_ascii = np.asarray(pc.string_is_ascii(column))
    for words_of, chosen in [(_words_of_ascii, is_ascii), (_words, ~is_ascii)]:
        texts = column.filter(pa.array(chosen))
        hashes[chosen] = _hashes([words or text for words, text in zip(words_of(texts), _bytes(texts), strict=True)])
    return hashes


def combined_hashes(first: Hashes, second: Hashes) -> Hashes:
    """Of N hashes of first and of second halves, those of the wholes: (N,)."""
    return first * _MIXER + second


def _hashes(texts: list[bytes]) -> Hashes:
    return np.fromiter(map(xxh3_64_intdigest, texts), np.uint64, len(texts))


def _bytes(column: pa.Array) -> list[bytes]:
    return column.cast(pa.binary()).to_pylist()


def _words_of_ascii(column: pa.Array) -> list[bytes]:
    return [text.translate(_LOWER, _ASCII_SEPARATORS) for text in _bytes(column)]


def _words(column: pa.Array) -> list[bytes]:
    folded = [unicodedata.normalize("NFKC", text).casefold().encode() for text in column.to_pylist()]
    # Most separators are ASCII, and ten times as fast taken out this way.
    words = pa.array([text.translate(None, _ASCII_SEPARATORS) for text in folded], pa.binary()).cast(pa.string())
    return _bytes(pc.replace_substring_regex(words, _SEPARATORS, ""))
