"""Subword algorithms, one a file; a new one is a file, and its lines here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from tokenizers import Tokenizer

from ..training_options import TrainingOptions
from .bpe import train_bpe_with_fallback
from .byte_bpe import train_byte_bpe
from .byte_fallback import BYTE_TOKENS
from .characters import train_characters
from .unigram import train_unigram
from .wordpiece import train_wordpiece

AlgorithmName = Literal["byte_bpe", "bpe", "unigram", "wordpiece", "characters"]
"""What a token is.

`byte_bpe`: a frequent sequence of bytes in a word (Sennrich et al., 2016, arXiv 1508.07909; Radford et al., 2019).
`bpe`: a frequent sequence of characters in a word, spaces written as "▁"; rare characters are spelled in bytes.
`unigram`: a substring of words, so that a language model of single tokens explains the texts best (Kudo, 2018, arXiv
    1804.10959); spaces and rare characters as in `bpe`.
`wordpiece`: the longest known beginning of a word, then the longest known continuation, spelled "##..." (Schuster and
    Nakajima, 2012; Devlin et al., 2018, arXiv 1810.04805). NOT lossless: decoding puts one space between all words and
    punctuation marks, and unknown characters make a word `<unk>`.
`characters`: one character; rare ones are spelled in bytes.
"""


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """How a tokenizer is trained, and what that takes."""

    train: Callable[[Iterable[str], TrainingOptions], Tokenizer]
    needs: tuple[int, str] = (len(BYTE_TOKENS), "bytes")
    """What a vocabulary holds at least besides the reserved tokens."""
    has_prefix_space: bool = True
    shortage: str | None
    """Why the vocabulary is smaller than asked for; None where that is no reason to warn."""


_NO_PAIR = "no other pair occurs at least {min_frequency} times (min_frequency) in the texts"

ALGORITHMS: dict[AlgorithmName, Algorithm] = {
    "byte_bpe": Algorithm(train=train_byte_bpe, shortage=_NO_PAIR),
    "bpe": Algorithm(train=train_bpe_with_fallback, shortage=_NO_PAIR),
    "unigram": Algorithm(train=train_unigram, shortage="the words of the texts have too few substrings in common"),
    "wordpiece": Algorithm(train=train_wordpiece, shortage=_NO_PAIR, needs=(1, "character"), has_prefix_space=False),
    "characters": Algorithm(train=train_characters, shortage=None, has_prefix_space=False),
}
