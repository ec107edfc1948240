"""The texts on their way to a trainer: read once, in a stream, and never held as a whole."""

import re
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np

Normalization = Literal["none", "NFC", "NFKC"]

SECONDS_BETWEEN_LINES = 30.0
CHARACTERS_A_BLOCK = 1 << 20
CODE_POINTS = sys.maxunicode + 1


def read(texts: Iterable[str], *, normalization: Normalization, user_symbols: Sequence[str]) -> Iterator[str]:
    """Pass on what is to be learned from.

    User symbols are cut out, as they are before encoding: what stands between them is a text of its own.

    Raises:
        ValueError: At the end, if no text had a character.
    """
    if user_symbols:
        longest_first = sorted(user_symbols, key=len, reverse=True)
        symbol = re.compile("|".join(map(re.escape, longest_first)))
        texts = (part for text in texts for part in symbol.split(text))
    if normalization != "none":
        texts = (unicodedata.normalize(normalization, text) for text in texts)
    any_text = False
    for text in texts:
        any_text = any_text or bool(text)
        yield text
    if not any_text:
        raise ValueError("texts is empty: a tokenizer needs at least one non-empty text to train on")


def log_progress(texts: Iterable[str], length: int | None) -> Iterator[str]:
    """Pass the texts on, and say twice a minute on standard error how many they were.

    For log files, where the trainers' own bars would be one unreadable line.
    """
    of_all = "" if length is None else f" of {length:,}"
    count, last = 0, time.monotonic()
    said = False
    for count, text in enumerate(texts, start=1):
        yield text
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last, said = time.monotonic(), True
            print(f"tokenizer: {count:,}{of_all} texts read", file=sys.stderr, flush=True)
    if said:
        print(f"tokenizer: all {count:,} texts read; choosing the vocabulary", file=sys.stderr, flush=True)


class CharacterCounts:
    """How often each character occurs in the texts that passed by."""

    def __init__(self) -> None:
        self._counts = np.zeros(CODE_POINTS, dtype=np.int64)

    def watch(self, texts: Iterable[str]) -> Iterator[str]:
        """Pass the texts on, and count their characters."""
        block: list[str] = []
        size = 0
        for text in texts:
            yield text
            block.append(text)
            size += len(text)
            if size >= CHARACTERS_A_BLOCK:
                self._add("".join(block))
                block, size = [], 0
        self._add("".join(block))

    def _add(self, text: str) -> None:
        # By blocks in numpy, since counting is part of the training time: five times as fast as a Counter.
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        counts = np.bincount(codes)
        self._counts[: len(counts)] += counts

    def frequent(self, min_frequency: int) -> list[str]:
        """The characters that occur at least so often, the most frequent first; in the order of Unicode if equal."""
        codes = np.flatnonzero(self._counts >= min_frequency)
        return [chr(code) for code in codes[np.argsort(-self._counts[codes], kind="stable")]]
