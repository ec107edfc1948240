"""Lines translated as they come, in order, in memory that does not grow with their number."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .line_source import UNWANTED, Line, ReadAhead
from .pieces import split_to_fit

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Item = TypeVar("Item")
Result = TypeVar("Result")

SECONDS_A_WINDOW = 5.0
"""How long lines are translated together for: what a kill can lose, and how long a translation waits for the others."""

FIRST_WINDOW, LARGEST_WINDOW = 64, 8192
"""Lines."""

Notes = Callable[[int, str], None]
"""Told the number of a text and what had to be done with it."""


def translate_stream(
    translate: "Callable[[Sequence[str], Notes], list[str]]", lines: ReadAhead[Line], note: Notes
) -> Iterator[list[str]]:
    """Translations in the order of the lines, window by window.

    A window is what is there when the last one is finished, up to as much as takes some seconds: of a file, enough to
    put lines of similar length together; of a pipe that brings a line a second, that line.

    Args:
        translate: texts to translations, one for one.
        lines: where they come from.
        note: told of each line that could not be translated as it is.
    """

    def work(window: list[Line]) -> list[str]:
        for line in window:
            for fault in line.faults:
                note(line.number, fault)
        translations = translate([line.text for line in window], _numbered(window, note))
        return [UNWANTED.sub(" ", translation) for translation in translations]

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

    def lengths(parts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in tokenizer([prefix + part for part in parts], verbose=False).input_ids]

    filled = [index for index, text in enumerate(texts) if text.strip()]
    counted = zip(filled, lengths([texts[index] for index in filled]) if filled else [], strict=True)
    pieces: list[str] = []
    owners: list[int] = []
    for index, length in counted:
        own = [texts[index]]
        if length > longest:
            own = split_to_fit(texts[index], longest, lengths)
            note(
                index,
                f"it has {length:,} tokens, and the model takes {longest:,}: translated in {len(own):,} pieces",
            )
        pieces += own
        owners += [index] * len(own)
    outputs = translate(
        model,
        tokenizer,
        [prefix + piece for piece in pieces],
        target_tokenizer=target_tokenizer,
        max_length=longest,
        **decoding,
    )
    translations: list[list[str]] = [[] for _ in texts]
    for owner, output in zip(owners, outputs, strict=True):
        translations[owner].append(output)
    return [" ".join(parts) for parts in translations]
