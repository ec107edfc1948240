"""Tokens with the piece of text that each brings, and the word that it belongs to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from ..serving.engines.incremental_text import IncrementalText
from ..tokenization.report import TokenText


@dataclass(frozen=True)
class Token:
    """A token of a text."""

    label: str
    """As a reader sees it by itself."""

    text: str
    """What of the text it completes: nothing of a mark, or of bytes that are no whole character yet."""

    word: int | None
    """The word that it is of, from 0; words are what white space separates. None: a mark, or white space alone."""


def read_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[Token]:
    """The tokens of these ids; their texts together are what the ids are decoded to."""
    marks = set(tokenizer.all_special_ids)
    texts = split_decoded(tokenizer, ids)
    words = number_words(texts, [id_ in marks for id_ in ids])
    labels = TokenText(tokenizer).all_shown(ids)
    return [Token(*each) for each in zip(labels, texts, words, strict=True)]


def split_decoded(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text."""

    def decode(some: Sequence[int]) -> str:
        return str(tokenizer.decode(list(some), skip_special_tokens=True))

    growing, texts = IncrementalText(decode, ()), []
    for id_ in ids:
        growing.add([id_])
        texts.append(growing.take())
    growing.end()
    if texts:
        texts[-1] += growing.take()
    return texts


def number_words(texts: Sequence[str], are_marks: Sequence[bool]) -> list[int | None]:
    """The word that each piece of a text begins in; of a piece without characters that of the next one."""
    words: list[int | None] = []
    current, is_between = -1, True
    for text, is_mark in zip(texts, are_marks, strict=True):
        if is_mark or (text and not text.strip()):
            words.append(None)
            is_between = True
        elif not text:
            words.append(current + is_between)
        else:
            is_between |= text[0].isspace()
            words.append(current + is_between)
            current += is_between + len(text.split()) - 1
            is_between = text[-1].isspace()
    return words


@dataclass(frozen=True)
class Word:
    """Neighbouring tokens that are one word; or a mark by itself."""

    text: str
    places: tuple[int, ...]
    """Of its tokens."""


def group_words(tokens: Iterable[Token]) -> list[Word]:
    """The words of tokens; white space belongs to none, and a mark is one with its label for a text."""
    words: list[Word] = []
    latest: int | None = None
    for place, token in enumerate(tokens):
        if token.word is None and token.text:
            latest = None
        elif token.word is not None and token.word == latest:
            words[-1] = Word(words[-1].text + token.text, (*words[-1].places, place))
        else:
            words.append(Word(token.text.lstrip() or ("" if token.word is not None else token.label), (place,)))
            latest = token.word
    return [Word(word.text.strip(), word.places) for word in words]
