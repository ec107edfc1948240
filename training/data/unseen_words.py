"""Words of a test set that the training text has not: a measure of how far from it the test set is."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..console.progress import ProgressBar
from .cleaning.sentence_length import SCRIPTS_WITHOUT_SPACES

_NOT_OF_WORDS = rf"[^\pL\pM]|[ー{SCRIPTS_WITHOUT_SPACES}]"
"""Numbers are no words, nor is what a script without spaces puts between others: where its words end is not known."""


@dataclass(frozen=True, kw_only=True)
class UnseenWords:
    """Of each of N texts."""

    words: NDArray[np.int64]
    """How many it has, (N,)."""

    unseen: NDArray[np.int64]
    """How many of them are not in the training text, (N,)."""

    def share(self, chosen: NDArray[np.bool_] | slice = slice(None)) -> float | None:
        """Of all words of the chosen texts, from 0 to 1; None if these have no words."""
        words = int(self.words[chosen].sum())
        return int(self.unseen[chosen].sum()) / words if words else None


def count_unseen_words(texts: pa.Array, training: Iterable[pa.Array]) -> UnseenWords:
    """Looks up the words of N texts in the training text.

    A word is a run of letters with their marks; case and the compatibility forms of Unicode (NFKC) make no difference.

    Args:
        texts: of the test set.
        training: the training text, in pieces; it is read until all words are found.
    """
    words, owners = _words(texts)
    missing = words.unique()
    with ProgressBar(desc="unseen words", unit=" rows") as bar:
        for piece in training:
            # Each form is looked at once: the same few thousand make up most of a text.
            seen, _ = _words(pc.ascii_split_whitespace(piece).flatten().unique())
            missing = missing.filter(pc.invert(pc.is_in(missing, value_set=seen)))
            bar.update(len(piece))
            if len(missing) == 0:
                break
    is_unseen = pc.is_in(words, value_set=missing).to_numpy(zero_copy_only=False)
    return UnseenWords(
        words=np.bincount(owners, minlength=len(texts)), unseen=np.bincount(owners[is_unseen], minlength=len(texts))
    )


def _words(texts: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """All words of N texts, (W,), and the place of the text of each, (W,)."""
    folded = pc.utf8_lower(pc.utf8_normalize(texts, form="NFKC"))
    lists = pc.ascii_split_whitespace(pc.replace_substring_regex(folded, _NOT_OF_WORDS, " "))
    words, owners = lists.flatten(), pc.list_parent_indices(lists)
    is_word = pc.not_equal(words, "")  # blanks at the ends of a text leave an empty one
    return words.filter(is_word), owners.filter(is_word).to_numpy()
