"""Translations compared with their sources, for what programs and readers rely on."""

from collections.abc import Callable, Sequence

from ..training.data.text.placeholders import find_difference
from .streaming import Notes

Translate = Callable[[Sequence[str], Notes], list[str]]
"""Texts to translations, one for one; told of each that could not be translated as it is, by its place."""


def checked(translate: Translate) -> Translate:
    """Translates as `translate` does, and notes each translation with other placeholders, tags or numbers."""

    def run(texts: Sequence[str], note: Notes) -> list[str]:
        translations = translate(texts, note)
        for place, (text, translation) in enumerate(zip(texts, translations, strict=True)):
            if difference := find_difference(text, translation):
                note(place, f"{difference.reason} ({difference.detail})")
        return translations

    return run
