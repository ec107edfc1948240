"""Sentences of the evaluation sets that occur in the training text as well: a score on them would measure memory."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from .hash_set import Hashes, HashSet, Mask
from .sentence_hashes import combined_hashes, normalized_hashes
from .sentence_length import count_characters, count_words

WORDS_OF_A_SIDE = 4
"""A side with fewer words counts only as half of a pair: "Thank you." is in every corpus, and tells nothing."""

CHARACTERS_OF_A_TEXT = 50
"""A row of running text with fewer is no leak: headings and refrains are repeated."""


class Leaks:
    """What is in the evaluation sets, to be looked up for training text.

    Texts are equal if their words are (see `normalized_hashes`). A training pair is a leak if its source is the
    source of a pair of the evaluation sets, or its target the target of one, with four words or more; or if both are,
    with any number of words, those of one and the same pair. A row of running text is one if a row of the evaluation
    sets equals it, with fifty characters or more.

    Args:
        chunks: the evaluation sets.
    """

    def __init__(self, chunks: Iterable[pa.RecordBatch]):
        self._sets = {name: HashSet() for name in ("source", "target", "pair", "text")}
        for chunk in chunks:
            for name, hashes in _hashes(chunk).items():
                self._sets[name].add(hashes if name == "pair" else hashes[_is_telling(name, chunk.column(name))])

    def find(self, chunk: pa.RecordBatch) -> Mask:
        """For N rows of training text, (N,), true where one is in the evaluation sets."""
        return np.logical_or.reduce([self._sets[name].contains(hashes) for name, hashes in _hashes(chunk).items()])


def find_seen(evaluation: pa.RecordBatch, training: Iterable[pa.RecordBatch]) -> Mask:
    """For N rows of an evaluation set, (N,), true where the training text has one that is equal, as `Leaks` says.

    Args:
        evaluation: sentence pairs, or running text.
        training: all of it, in pieces.
    """
    seen = np.zeros(len(evaluation), np.bool_)
    wanted = _hashes(evaluation)
    telling = {name: name == "pair" or _is_telling(name, evaluation.column(name)) for name in wanted}
    for chunk in training:
        for name, hashes in _hashes(chunk).items():
            seen |= telling[name] & np.isin(wanted[name], hashes)
    return seen


def _hashes(chunk: pa.RecordBatch) -> dict[str, Hashes]:
    if "text" in chunk.schema.names:
        return {"text": normalized_hashes(chunk.column("text"))}
    source, target = normalized_hashes(chunk.column("source")), normalized_hashes(chunk.column("target"))
    return {"source": source, "target": target, "pair": combined_hashes(source, target)}


def _is_telling(name: str, column: pa.Array) -> Mask:
    """Which texts are long enough to count by themselves."""
    if name == "text":
        return count_characters(column) >= CHARACTERS_OF_A_TEXT
    return count_words(column) >= WORDS_OF_A_SIDE
