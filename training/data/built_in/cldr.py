"""Translation pairs from Unicode CLDR: a parallel corpus for any two locales that is made, not downloaded.

CLDR, the Unicode Common Locale Data Repository, records how each language writes dates, times, numbers,
prices, measurements, durations and lists, and what it calls countries, languages and currencies. Babel
formats with it. One value written in two locales is a translation pair, of text that software shows to
people every day:

    en  Wednesday, September 26, 2007          de  Mittwoch, 26. September 2007
    en  1,234.50 US dollars                    de  1.234,50 US-Dollar
    en  Brazil, Kenya, and Switzerland         de  Brasilien, Kenia und Schweiz

The vocabulary is small, yet a model has to copy, to reorder, to make words agree in number, and to know
names. As pairs are made by rule, each source has exactly one right translation: an exact match of 100 % is
possible.

**What the held-out splits test is composition.** Nobody can translate the name of a country that they never
saw. So names that stand alone are in the training split only, and every word of a held-out pair is in several
composed training pairs. What validation and test hold that is new is combinations, never words.

**No overlap.** No source text and no target text of one split is in another. Pairs that share a side (two
styles of date may coincide in one of the locales) go to the same split.

**One reading.** Where two styles or names look alike in the source locale and differ in the target, one of
them is left out for good: English writes May 5 alike with the month in full and abbreviated, German does not.
Where one locale says less than another, values are chosen so that nothing is lost: years lie within one
hundred, so that two digits name them; compact numbers have two significant digits, so that none is rounded.

**The text stays as CLDR has it**, with no-break spaces (U+00A0, and the narrow U+202F before "PM") and with
the direction marks of right-to-left scripts: this is what programs print, hence what a model will meet.
Half of the sources have plain blanks instead, which is what people type. Only the digits are the same
everywhere, 0 to 9.
"""

import re
from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from random import Random

from babel import Locale, UnknownLocaleError
from babel.localedata import locale_identifiers

from ...console.progress import ProgressBar
from .cldr_expressions import Expression, expressions, name_families

# A word of a held-out pair occurs in at least this many composed pairs of the training split.
SEEN_IN_TRAINING = 10


def expression_pairs(
    source_locale: str = "en",
    target_locale: str = "de",
    *,
    pairs: int = 60_000,
    validation: int = 1_000,
    test: int = 1_000,
    seed: int = 1,
) -> dict[str, list[tuple[str, str]]]:
    """Makes a parallel corpus of (source, target) texts under "train", "validation" and "test".

    The result is a function of the arguments and of the CLDR version inside Babel. What the splits hold and
    what they test is said at the top of this module. Sixty thousand pairs take about four seconds.

    Args:
        source_locale: The locale translated from: a CLDR identifier such as "en", "de" or "pt_BR".
        target_locale: The locale translated into.
        pairs: Number of training pairs, the names that stand alone among them.
        validation: Number of validation pairs.
        test: Number of test pairs.
        seed: Seed of the draws.

    Raises:
        ValueError: A locale is not in CLDR, both are the same, a size is negative, or there are too few
            training pairs to cover the words of the held-out ones.
    """
    source, target = parse_locale(source_locale), parse_locale(target_locale)
    if source == target:
        raise ValueError(f"source and target locale are both {source_locale!r}: translation needs two")
    for size, value in {"pairs": pairs, "validation": validation, "test": test}.items():
        if value < 0:
            raise ValueError(f"{size}={value}: a number of pairs is zero or more")

    rng = Random(seed)
    names = {say(source): say(target) for family in name_families(source, target) for say in family}
    if pairs < len(names):
        raise ValueError(f"pairs={pairs} is too small for the {len(names)} names, all of which are training pairs")
    translations = _draw_translations(names, pairs + validation + test, expressions(source, target, rng))
    groups = _groups_that_share_a_target(translations)
    rng.shuffle(groups)

    splits: dict[str, list[tuple[str, str]]] = {"train": [], "validation": [], "test": []}
    room = {"validation": validation, "test": test}
    # In how many composed pairs a word is that are not held out: holding out can only lower it.
    seen = Counter(word for pair in translations.items() if pair[0] not in names for word in _words(pair))
    for group in groups:
        words = Counter(word for pair in group for word in _words(pair))
        if (
            (split := next((name for name in room if len(group) <= room[name]), None))
            and not any(source_text in names for source_text, _ in group)
            and all(seen[word] - count >= SEEN_IN_TRAINING for word, count in words.items())
        ):
            room[split] -= len(group)
            seen.subtract(words)
        else:
            split = "train"
        splits[split] += group
    if any(room.values()):
        raise ValueError(
            f"pairs={pairs} is too small for validation={validation} and test={test}: "
            f"each of their words must be in {SEEN_IN_TRAINING} training pairs"
        )
    return splits


def parse_locale(identifier: str) -> Locale:
    """Returns the locale of a CLDR identifier.

    Raises:
        ValueError: CLDR has no such locale. The message names the nearest ones.
    """
    try:
        return Locale.parse(identifier)
    except (ValueError, UnknownLocaleError) as error:
        near = get_close_matches(identifier.replace("-", "_"), locale_identifiers(), n=3, cutoff=0.5)
        hint = f"; the nearest are {', '.join(map(repr, near))}" if near else ""
        raise ValueError(f"CLDR has no locale {identifier!r}{hint} (written like 'en', 'de' or 'pt_BR')") from error


def _draw_translations(names: dict[str, str], total: int, drawn: Iterable[Expression]) -> dict[str, str]:
    """Adds distinct expressions to the names up to a total. A source with two translations is dropped."""
    translations, ambiguous = dict(names), set[str]()
    with ProgressBar(total=total, initial=len(names), desc="CLDR expressions", unit=" pairs") as progress:
        for _, source_text, target_text in drawn:
            if len(translations) >= total:
                break
            if not (source_text and target_text) or source_text in ambiguous:
                continue
            if source_text not in translations:
                translations[source_text] = target_text
                progress.update()
            elif translations[source_text] != target_text:
                del translations[source_text]
                ambiguous.add(source_text)
                progress.update(-1)
    return translations


def _groups_that_share_a_target(translations: dict[str, str]) -> list[list[tuple[str, str]]]:
    """Puts pairs with the same target together; sources are distinct, so no other pairs share a side."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for pair in translations.items():
        groups.setdefault(pair[1], []).append(pair)
    return list(groups.values())


def _words(pair: tuple[str, str]) -> set[tuple[int, str]]:
    """Returns the words and signs of both sides, each with its side. Numbers are not words: they are open."""
    return {(side, word) for side, text in enumerate(pair) for word in re.findall(r"[^\W\d_]+|[^\w\s]", text)}
