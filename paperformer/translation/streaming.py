"""Lines translated as they come, in order, in memory that does not grow with their number."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .cutting import Notes, cut_texts
from .line_source import UNWANTED, Line, ReadAhead

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Item = TypeVar("Item")
Result = TypeVar("Result")

SECONDS_A_WINDOW = 5.0
"""How long lines are translated together for: what a kill can lose, and how long a translation waits for the others."""

FIRST_WINDOW, LARGEST_WINDOW = 64, 8192
"""Lines."""

Written = Callable[[int, Any], str]
"""Of the number of a line and what was made of it, from 1, what is put out: a line, or more."""


def as_text(number: int, translation: str) -> str:
    """A translation as one line."""
    return UNWANTED.sub(" ", translation)


def translate_stream(
    translate: Callable[[Sequence[str], Notes], Sequence[Any]],
    lines: ReadAhead[Line],
    note: Notes,
    written: Written = as_text,
) -> Iterator[list[str]]:
    """Translations in the order of the lines, window by window.

    A window is what is there when the last one is finished, up to as much as takes some seconds: of a file, enough to
    put lines of similar length together; of a pipe that brings a line a second, that line.

    Args:
        translate: texts to translations, or to what else is made of each, one for one.
        lines: where they come from.
        note: told of each line that could not be translated as it is.
        written: makes lines of what `translate` gives.
    """

    def work(window: list[Line]) -> list[str]:
        for line in window:
            for fault in line.faults:
                note(line.number, fault)
        translations = translate([line.text for line in window], _numbered(window, note))
        return [written(line.number, translation) for line, translation in zip(window, translations, strict=True)]

    return work_in_windows(lines, work)


def work_in_windows(items: ReadAhead[Item], work: Callable[[list[Item]], Result]) -> Iterator[Result]:
    """What `work` makes of the items that are there, up to as many as take some seconds, and so on to their end."""
    size = FIRST_WINDOW
    while window := items.take(size):
        start = time.monotonic()
        result = work(window)
        seconds = time.monotonic() - start
        yield result
        if len(window) == size:
            size = max(FIRST_WINDOW, min(LARGEST_WINDOW, 4 * size, int(size / max(1e-3, seconds) * SECONDS_A_WINDOW)))


def _numbered(window: list[Line], note: Notes) -> Notes:
    return lambda index, what: note(window[index].number, what)


def translate_texts(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    texts: Sequence[str],
    note: Notes,
    *,
    target_tokenizer: "PreTrainedTokenizerBase | None" = None,
    prefix: str = "",
    **decoding: Any,
) -> list[str]:
    """Translations of texts of any length, one for one; of a text without characters, an empty one.

    A text with more tokens than the model takes is translated in pieces, which are put together with blanks.

    Args:
        note: told of such a text, by its place from 0.
        target_tokenizer, decoding: as `training.evaluation.decoding.translate` takes them.
        prefix: put before every text, and before every piece.
    """
    from ..training.evaluation.decoding import longest_sequence, translate

    longest = min(tokenizer.model_max_length, longest_sequence(model))
    pieces = cut_texts(texts, tokenizer, longest, prefix, note)
    outputs = translate(
        model,
        tokenizer,
        [prefix + piece.text for piece in pieces],
        target_tokenizer=target_tokenizer,
        max_length=longest,
        **decoding,
    )
    translations: list[list[str]] = [[] for _ in texts]
    for piece, output in zip(pieces, outputs, strict=True):
        translations[piece.owner].append(output)
    return [" ".join(parts) for parts in translations]
