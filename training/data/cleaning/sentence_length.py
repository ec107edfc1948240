"""How long sentences are, in words and in characters, and how the lengths of a pair compare."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SCRIPTS_WITHOUT_SPACES = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = rf"[{SCRIPTS_WITHOUT_SPACES}]{{1,3}}|[^\s\pZ{SCRIPTS_WITHOUT_SPACES}]+"

SMOOTHING = 10
"""Characters added to both sides before lengths are compared: short sentences differ much, and rightly."""


def count_words(column: pa.Array) -> npt.NDArray[np.integer]:
    """Words of N texts: (N,).

    A word is what stands between white space; of scripts that put none between words, three letters count as one.
    """
    return np.asarray(pc.count_substring_regex(column, _WORD))


def count_characters(column: pa.Array) -> npt.NDArray[np.integer]:
    """Characters of N texts: (N,)."""
    return np.asarray(pc.utf8_length(column))


def length_ratios(sources: pa.Array, targets: pa.Array) -> npt.NDArray[np.floating]:
    """How many times as long the longer side of N pairs is, in characters, smoothed: (N,)."""
    lengths = np.stack([count_characters(sources), count_characters(targets)]) + SMOOTHING
    return lengths.max(axis=0) / lengths.min(axis=0)
