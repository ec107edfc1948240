"""Texts cut into what a model takes, with where each piece is from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..pieces import split_to_fit

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Notes = Callable[[int, str], None]
"""Told the number of a text and what had to be done with it."""


@dataclass(frozen=True)
class Piece:
    """A text that is translated at once, or a part of one."""

    text: str

    owner: int
    """Which of the texts it is of."""

    is_first: bool
    """Whether the text begins with it."""

    first_word: int
    """Which word of the text its first one is, from 0, or belongs to; words are what white space separates."""


def cut_texts(
    texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", longest: int, prefix: str, note: Notes
) -> list[Piece]:
    """Texts as they can be translated: those that are too long in pieces, those without characters not at all.

    Args:
        longest: in tokens, those of the prefix included.
        prefix: what every piece is to stand behind.
        note: told of a text that is too long, by its place from 0.
    """

    def lengths(parts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in tokenizer([prefix + part for part in parts], verbose=False).input_ids]

    filled = [index for index, text in enumerate(texts) if text.strip()]
    counted = zip(filled, lengths([texts[index] for index in filled]) if filled else [], strict=True)
    pieces: list[Piece] = []
    for index, length in counted:
        if length <= longest:
            pieces.append(Piece(texts[index], index, True, 0))
            continue
        parts = split_to_fit(texts[index], longest, lengths)
        note(index, f"it has {length:,} tokens, and the model takes {longest:,}: translated in {len(parts):,} pieces")
        end = 0
        for part in parts:
            start = texts[index].index(part, end)
            is_within_a_word = start > 0 and not texts[index][start - 1].isspace()
            first_word = len(texts[index][:start].split()) - is_within_a_word
            pieces.append(Piece(part, index, end == 0, first_word))
            end = start + len(part)
    return pieces
