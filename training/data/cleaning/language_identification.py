"""Which language a text is in, as far as it can be told with confidence, by py3langid (extra `langid`).

It is a naive Bayes classifier over sequences of bytes for 139 languages (Lui and Baldwin 2012, "langid.py"): small,
offline and deterministic.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ...console.input_error import InputError
from .hash_set import Mask

TIMES_AS_LIKELY = 10
PROBABILITY = 0.1
"""What another language needs to be told with confidence: as many times the probability of the right one, and at least
this one. The likeliest language of a short sentence may well be wrong: so it is for 23 of 4,000 English and German
sentences of Tatoeba, but for none of them with confidence; and with languages swapped, 3,978 of the 4,000 are found.
Names by themselves look like any language, and like none with such a probability."""

CHARACTERS = 500
"""Of a text, that many characters are looked at."""

_ALIKE = [{"hr", "sr", "bs"}, {"no", "nb", "nn"}, {"id", "ms"}, {"zh", "yue", "wuu"}, {"ar", "arz", "ary"}]
"""Languages that a sentence does not tell apart."""

_NO_LANGUAGE = "zxx"  # numbers, markup and names of things; ISO 639-2


class LanguageIdentifier:
    """Tells texts that are in another language than they should be.

    Args:
        languages: the codes that will be asked about; of `pt_BR` or `zh-Hant`, the first part is looked at.

    Raises:
        InputError: if the package is missing, or does not know a language.
    """

    def __init__(self, languages: Sequence[str]):
        try:
            import py3langid.langid  # noqa: F401
        except ImportError as error:
            raise InputError(
                "cleaning.language_identification needs py3langid; install it: pip install 'paperformer[langid]'"
            ) from error
        self._model = _load_model()
        known = set(self._model.labels)
        for language in languages:
            if not _alike(language) & known:
                raise InputError(
                    f"cleaning.language_identification is true, but '{language}' is not among the languages it knows: "
                    f"{', '.join(sorted(known - {_NO_LANGUAGE}))}"
                )

    def is_other(self, texts: Sequence[str], language: str) -> Mask:
        """For N texts, (N,), true where one is in another language, with confidence."""
        right = _alike(language)
        return np.fromiter((self._is_other(text, right) for text in texts), np.bool_, len(texts))

    def _is_other(self, text: str, right: set[str]) -> bool:
        ranking = self._model.rank(text[:CHARACTERS])
        likeliest, probability = ranking[0]
        if likeliest in right or likeliest == _NO_LANGUAGE or probability < PROBABILITY:
            return False
        return probability > TIMES_AS_LIKELY * sum(other for language, other in ranking if language in right)


@cache
def _load_model() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _alike(language: str) -> set[str]:
    code = language.replace("_", "-").partition("-")[0].lower()
    return next((group for group in _ALIKE if code in group), {code})
