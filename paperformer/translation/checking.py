"""Translations compared with their sources, for what programs and readers rely on."""

from collections.abc import Callable, Sequence
from typing import Any

from ..training.data.text.placeholders import find_difference
from .cutting import Notes

Translate = Callable[[Sequence[str], Notes], list[str]]
"""Texts to translations, one for one; told of each that could not be translated as it is, by its place."""


Window = Callable[[Sequence[str], Notes], Sequence[Any]]
"""The same, where more may be made of a text than one translation."""


def text_of(result: Any) -> str:
    """The translation in what was made of a text: itself, or the best of some hypotheses."""
    return result if isinstance(result, str) else str(result[0].text)


def checked(
    translate: Callable[[Sequence[str], Notes], Sequence[Any]],
) -> Callable[[Sequence[str], Notes], Sequence[Any]]:
    """Translates as `translate` does, and notes each translation with other placeholders, tags or numbers."""

    def run(texts: Sequence[str], note: Notes) -> Sequence[Any]:
        results = translate(texts, note)
        for place, (text, result) in enumerate(zip(texts, results, strict=True)):
            if difference := find_difference(text, text_of(result)):
                note(place, f"{difference.reason} ({difference.detail})")
        return results

    return run
