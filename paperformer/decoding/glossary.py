"""Terms that have a fixed translation: which of them a text has, and whether its translation has theirs."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..training.console.input_error import InputError
from ..training.data.text.lines import read_lines
from .constrained_search import Ids

# Scripts that put no blanks between words: Thai, Lao, Myanmar, Khmer, kana, Han.
WITHOUT_BLANKS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


def joins(character: str) -> bool:
    """Whether a character beside a word is part of it."""
    is_of_word = character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
    return is_of_word and not WITHOUT_BLANKS.match(character)


def places_of(term: str, text: str) -> list[int]:
    """Where a text has a term, and not only as a part of another word."""
    found = (match.start() for match in re.finditer(re.escape(term), text))
    return [start for start in found if _is_whole(text[:start][-1:], text[start + len(term) :][:1], term)]


def _is_whole(before: str, behind: str, term: str) -> bool:
    beside = (before, term[0]), (behind, term[-1])
    return not any(other and joins(other) and joins(edge) for other, edge in beside)


@dataclass(frozen=True)
class Glossary:
    """Terms of the source language and how each is to be translated."""

    terms: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, path: Path) -> "Glossary":
        """The terms of a file: on each line one of the source language, a tab, and its translation.

        Raises:
            InputError: if the file cannot be read, or a line is something else, or has a term again with another
                translation.
        """
        found: dict[str, tuple[int, str]] = {}
        for number, line in enumerate(read_lines(path), start=1):
            columns = [column.strip() for column in (line or "").split("\t")]
            if columns == [""]:
                continue
            if len(columns) != 2 or not all(columns):
                raise InputError(f"{path}, line {number:,}: it must be a term, a tab, and the term's translation")
            source, target = columns
            first, known = found.setdefault(source, (number, target))
            if known != target:
                raise InputError(
                    f"{path}, line {number:,}: {source!r} is {known!r} by line {first:,}; a term has one translation"
                )
        return cls(tuple((source, target) for source, (_, target) in found.items()))

    @classmethod
    def of(cls, terms: Mapping[str, str]) -> "Glossary":
        """Of terms and their translations.

        Raises:
            InputError: if one of them is empty.
        """
        for source, target in terms.items():
            if not source.strip() or not target.strip():
                raise InputError(f"the glossary has {source!r}: {target!r}; a term and its translation need characters")
        return cls(tuple((source.strip(), target.strip()) for source, target in terms.items()))

    def wanted(self, source: str) -> list[str]:
        """What the translation of a text is to have: of terms that lie in each other, of the longest.

        A term is found as a whole word or several, without regard to case.
        """
        folded, wanted = source.casefold(), []
        for term, target in sorted(self.terms, key=lambda pair: -len(pair[0])):
            for start in places_of(own := term.casefold(), folded):
                folded = folded[:start] + "\0" * len(own) + folded[start + len(own) :]  # it is not looked into again
                wanted.append(target)
        return list(dict.fromkeys(wanted))


def missing_terms(translation: str, wanted: Sequence[str]) -> list[str]:
    """Those that a translation does not have."""
    return [term for term in wanted if not places_of(term, translation)]


def ids_of(term: str, tokenizer: PreTrainedTokenizerBase) -> Ids:
    """The ids of a term in the middle of a sentence; none if the tokenizer has not all its characters."""
    before, ids = (_ids(text, tokenizer) for text in ("a", f"a {term}"))
    own = ids[len(before) :] if ids[: len(before)] == before else _ids(term, tokenizer)
    (text,) = tokenizer.batch_decode([list(own)], skip_special_tokens=True)
    return own if text.strip() == term else ()


def word_continuations(tokenizer: PreTrainedTokenizerBase, size: int) -> Tensor:
    """Which tokens go on with the word before them, (V,), of bool.

    A byte of a character that is not complete may begin a letter, so it is taken for one.
    """
    before = list(_ids("a", tokenizer))
    head, *texts = tokenizer.batch_decode(
        [before, *([*before, token] for token in range(size))], skip_special_tokens=True
    )
    behind = [text.removeprefix(head)[:1] for text in texts]
    return torch.tensor([bool(first) and (first == "\ufffd" or joins(first)) for first in behind])


def _ids(text: str, tokenizer: PreTrainedTokenizerBase) -> Ids:
    return tuple(tokenizer(text_target=text, add_special_tokens=False).input_ids)
