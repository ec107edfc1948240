"""What tokenizers make of a text, as counts and the ratios between them, by which tokenizers are compared.

Tokens are those of the text: the ones that a tokenizer adds at the ends, such as </s>, are not counted. A word is what
stands between white space, with its punctuation. So ratios to words compare tokenizers on one text, but say little of
scripts that do not put spaces between words (Chinese, Japanese, Thai), and do not compare languages.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

from transformers import PreTrainedTokenizerFast

CHARACTERS_A_BATCH = 200_000
"""How much text is encoded at once: the library keeps some hundred bytes for each token until a batch is done."""

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a tokenizer makes of some sentences. Measurements of one tokenizer add up."""

    sentences: int = 0
    """Texts that are not blank."""
    words: int = 0
    characters: int = 0
    """Unicode code points of the sentences."""
    bytes: int = 0
    """Of the sentences, as UTF-8."""
    tokens: int = 0
    unknown: int = 0
    """Tokens that are the unknown token."""
    whole_words: int = 0
    """Words that one known token covers alone."""
    round_trips: int = 0
    """Sentences that decoding gives back exactly."""
    seconds: float = 0.0
    """Wall time of encoding."""
    seen: frozenset[int] = frozenset()
    """Ids of the tokens that occur."""

    def __add__(self, other: "Measurement") -> "Measurement":
        sums: dict[str, Any] = {name: value + vars(other)[name] for name, value in vars(self).items() if name != "seen"}
        return Measurement(**sums, seen=self.seen | other.seen)

    @property
    def fertility(self) -> float:
        """Tokens a word (Rust et al. 2021, arXiv 2012.15613): 1 if every word is a token; splits add to it."""
        return self.tokens / self.words

    @property
    def tokens_per_sentence(self) -> float:
        """Mean length of a sentence, in tokens."""
        return self.tokens / self.sentences

    @property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes a token: how much text fits into a context, and what turns nats a token into bits a byte."""
        return self.bytes / self.tokens

    @property
    def characters_per_token(self) -> float:
        """Unicode code points a token."""
        return self.characters / self.tokens

    @property
    def unknown_rate(self) -> float:
        """Share of tokens that are the unknown token. What a tokenizer drops in silence fails to come back instead."""
        return self.unknown / self.tokens

    @property
    def whole_word_rate(self) -> float:
        """Share of words kept whole; the opposite of the proportion of continued words of Rust et al. 2021."""
        return self.whole_words / self.words

    @property
    def round_trip_rate(self) -> float:
        """Share of sentences that decoding gives back exactly."""
        return self.round_trips / self.sentences

    @property
    def sentences_per_second(self) -> float:
        """Speed of encoding in batches, with the library's own number of threads; noisy."""
        return self.sentences / self.seconds


def measure(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> Measurement:
    """Encodes and decodes sentences, and counts.

    Args:
        tokenizer: any fast tokenizer.
        texts: sentences; blank ones are left out. They are encoded in batches, so that memory does not grow with them.
    """
    filled = [text for text in texts if text.strip()]
    batch_numbers = (end // CHARACTERS_A_BATCH for end in accumulate(map(len, filled)))
    total = Measurement()
    for _, batch in groupby(zip(batch_numbers, filled, strict=True), key=itemgetter(0)):
        total += _measure_batch(tokenizer, [text for _, text in batch])
    return total


def _measure_batch(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> Measurement:
    started = time.perf_counter()
    encoded = tokenizer(
        texts,
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # of texts longer than a model takes
    )
    seconds = time.perf_counter() - started
    rows: list[list[int]] = encoded.input_ids
    back = tokenizer.batch_decode(rows, skip_special_tokens=True)
    words = whole_words = 0
    for text, ids, encoding in zip(texts, rows, encoded.encodings or [], strict=True):
        spans = [match.span() for match in _WORD.finditer(text)]
        words += len(spans)
        whole_words += _count_whole(spans, encoding.offsets, ids, tokenizer.unk_token_id)
    return Measurement(
        sentences=len(texts),
        words=words,
        characters=sum(map(len, texts)),
        bytes=sum(len(text.encode()) for text in texts),
        tokens=sum(map(len, rows)),
        unknown=sum(ids.count(tokenizer.unk_token_id) for ids in rows),
        whole_words=whole_words,
        round_trips=sum(text == decoded for text, decoded in zip(texts, back, strict=True)),
        seconds=seconds,
        seen=frozenset(id_ for ids in rows for id_ in ids),
    )


def _count_whole(
    words: Sequence[tuple[int, int]], offsets: Sequence[tuple[int, int]], ids: Sequence[int], unknown: int | None
) -> int:
    """How many words are touched by one token only, and that a known one.

    Args:
        words: begin and end of each word, in order.
        offsets: begin and end of what each token stands for.
        ids: of the tokens.
        unknown: id of the unknown token, if there is one.
    """
    touches = [0] * len(words)
    first = 0  # the first word that a token can still touch
    for (start, end), id_ in zip(offsets, ids, strict=True):
        while first < len(words) and words[first][1] <= start:
            first += 1
        index = first
        while index < len(words) and words[index][0] < end:
            touches[index] += 2 if id_ == unknown else 1
            index += 1
    return touches.count(1)
