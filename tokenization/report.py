"""What a tokenizer is: its model and vocabulary, its tokens as a reader sees them, and which texts survive it."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

PROBES = {
    "capital letters": "Two CAPITALS",
    "accents": "naïve café",
    "combining accents": "cafe\u0301",
    "ligatures and full-width letters": "ﬁne Ａ①",
    "several spaces": "one  two   three",
    "spaces at the ends": " one ",
    "spaces before punctuation": "one , two . do n't",
    "tabs and line ends": "one\ttwo\nthree\r\n",
    "typographic signs": "“one” – two…",
    "other alphabets": "Ελλάδα Россия العربية हिन्दी",
    "Chinese and Japanese": "日本語 中文",
    "emoji": "🙂 👩‍👩‍👧",
    "control and invisible characters": "one\x07two\u200bthree\ufeff",
}
"""Kinds of text that tokenizers are known to alter, and one text of each."""

_VISIBLE = {" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥"}
_BYTE_OF = {symbol: byte for byte, symbol in bytes_to_unicode().items()}  # GPT-2's way to write a byte as a letter
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")  # SentencePiece's way to write a byte


@dataclass(frozen=True, kw_only=True)
class TokenizerReport:
    """What a tokenizer is made of. Counts of tokens leave out special and added ones."""

    model: str
    """Kind of its model, such as `byte-level BPE`, `BPE with byte fallback`, `Unigram` or `WordPiece`."""
    size: int
    """Tokens of the vocabulary, special and added ones included."""
    special_tokens: dict[str, int]
    """Special token -> its id."""
    normalizer: str
    """What is done to a text before it is split, or `none`."""
    altered: dict[str, tuple[str, str]]
    """Kind of text that does not come back from encoding and decoding -> an example, and what came back."""
    single_bytes: int
    """Tokens that stand for one byte; 0 unless the tokenizer works on bytes, or falls back to them."""
    single_characters: int
    """Tokens that stand for one character; the 128 characters of ASCII are single bytes as well."""
    numbers: int
    """Tokens of decimal digits alone, but for a space before them."""
    longest_number: int
    """Digits of the longest of these; 1 if numbers are read digit by digit."""
    longest_tokens: tuple[str, ...]
    """The tokens of most characters, longest first, as `TokenText.shown` gives them."""


class TokenText:
    """What the tokens of a tokenizer stand for.

    Args:
        tokenizer: any; of one that runs in Python, tokens are taken as they are spelled.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer
        backend: Tokenizer = getattr(tokenizer, "backend_tokenizer", None) or Tokenizer(models.WordLevel())
        self.added = tokenizer.get_added_vocab()
        self.is_byte_level = "ByteLevel" in f"{backend.decoder} {backend.pre_tokenizer}"
        self.falls_back_to_bytes = not self.is_byte_level and "ByteFallback" in str(backend.decoder)
        self._prefix = getattr(backend.model, "continuing_subword_prefix", None) or ""
        self._suffix = getattr(backend.model, "end_of_word_suffix", None) or ""

    def content(self, token: str) -> bytes:
        """The UTF-8 bytes that a token stands for; not always whole characters. Signs of word boundaries are no text.

        SentencePiece's ▁ and a byte-level Ġ are spaces; WordPiece's ## and a </w> of BPE are boundaries.
        """
        if token in self.added:
            return token.encode()
        if self.is_byte_level:
            return b"".join(bytes([_BYTE_OF[s]]) if s in _BYTE_OF else s.encode() for s in token)
        if self.falls_back_to_bytes and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes.fromhex(match[1])
        return token.removeprefix(self._prefix).removesuffix(self._suffix).replace("▁", " ").encode()

    def is_byte(self, token: str) -> bool:
        """Whether a token stands for one byte, in a tokenizer that works on bytes or falls back to them."""
        if self.is_byte_level:
            return token not in self.added and len(self.content(token)) == 1
        return self.falls_back_to_bytes and _BYTE_TOKEN.fullmatch(token) is not None

    def shown(self, token: str) -> str:
        """A token as a reader sees it: `visible`, with bytes that are no whole character as \\xc3; ## and </w> stay."""
        if token in self.added or self.is_byte_level or self.falls_back_to_bytes:
            return visible(self.content(token).decode("utf-8", errors="backslashreplace"))
        return visible(token.replace("▁", " "))

    def all_shown(self, ids: Sequence[int]) -> list[str]:
        """The tokens of these ids as a reader sees them; `id=N` where the vocabulary has none."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        return [self.shown(token) if token else f"id={id_}" for id_, token in zip(ids, tokens, strict=True)]

    def longest(self, ids: Iterable[int], count: int) -> tuple[str, ...]:
        """The tokens of most characters among these ids, longest first; special and added ones are left out."""
        ids = list(ids)
        tokens = [
            (-len(self.content(token).decode("utf-8", errors="replace")), id_, token)
            for id_, token in zip(ids, self.tokenizer.convert_ids_to_tokens(ids), strict=True)
            if token and token not in self.added
        ]
        return tuple(self.shown(token) for _, _, token in sorted(tokens)[:count])


def visible(text: str) -> str:
    """A text on one line, without effect on a terminal: a space is ␣, a line end ↵, a control character its code."""
    shown = "".join(_VISIBLE.get(s, s if s.isprintable() else ascii(s)[1:-1]) for s in text)
    # An accent with no letter to sit on would sit on what stands before the text.
    return f"◌{shown}" if shown and unicodedata.category(shown[0]).startswith("M") else shown


def describe(tokenizer: PreTrainedTokenizerFast, longest: int = 10) -> TokenizerReport:
    """What a tokenizer is made of, and what it does to difficult texts.

    Args:
        tokenizer: any fast tokenizer.
        longest: how many of the longest tokens to name.
    """
    text = TokenText(tokenizer)
    backend = tokenizer.backend_tokenizer
    vocabulary = tokenizer.get_vocab()
    contents = [text.content(token) for token in vocabulary if token not in text.added]
    characters = [content.decode() for content in contents if _is_utf8(content)]
    special = set(tokenizer.all_special_tokens)
    numbers = [len(word) for word in (found.removeprefix(" ") for found in characters) if word.isdecimal()]
    return TokenizerReport(
        model=_model_kind(text, type(backend.model).__name__),
        size=len(tokenizer),
        special_tokens={token: vocabulary[token] for token in sorted(special, key=vocabulary.__getitem__)},
        normalizer=re.sub(r'"[^"]{40,}"', '"…"', str(backend.normalizer)) if backend.normalizer else "none",
        altered=find_altered_texts(tokenizer),
        single_bytes=sum(map(text.is_byte, vocabulary)),
        single_characters=sum(len(found) == 1 for found in characters),
        numbers=len(numbers),
        longest_number=max(numbers, default=0),
        longest_tokens=text.longest(vocabulary.values(), longest),
    )


def find_altered_texts(tokenizer: PreTrainedTokenizerFast) -> dict[str, tuple[str, str]]:
    """Which of `PROBES`, and of the tokenizer's own special tokens in a text, do not come back from decoding.

    Returns:
        Kind of text -> the text, and what came back. That all come back is a strong sign, no proof.
    """
    probes = PROBES | {"special tokens spelled out": " ".join(["one", *tokenizer.all_special_tokens, "two"])}
    ids = tokenizer(list(probes.values()), add_special_tokens=False, verbose=False).input_ids
    back = tokenizer.batch_decode(ids, skip_special_tokens=True)
    pairs = zip(probes.items(), back, strict=True)
    return {kind: (text, decoded) for (kind, text), decoded in pairs if decoded != text}


def _model_kind(text: TokenText, model: str) -> str:
    if text.is_byte_level:
        return f"byte-level {model}"
    return f"{model} with byte fallback" if text.falls_back_to_bytes else model


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
