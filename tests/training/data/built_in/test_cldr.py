"""The corpus keeps its promises: no overlap, one translation a source, no unseen word, any locale."""

import os
import re
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from babel import Locale
from babel.localedata import locale_identifiers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paperformer.training.data.built_in import cldr, cldr_expressions
from paperformer.training.data.built_in.cldr import expression_pairs, parse_locale
from paperformer.training.data.built_in.cldr_expressions import KINDS, expressions

from ....examples import examples

Splits = dict[str, list[tuple[str, str]]]

# Translated to and from scripts with and without word spaces, left to right and right to left.
LOCALE_PAIRS = [
    ("fr", "es"),
    ("en", "ja"),
    ("ja", "en"),
    ("pt_BR", "ar"),
    ("zh_Hant", "hi"),
    ("fa", "th"),
]


def small_corpus(source: str, target: str, seed: int = 1) -> Splits:
    return expression_pairs(source, target, pairs=2_000, validation=100, test=100, seed=seed)


def words(texts: list[str]) -> Counter[str]:
    """In how many of the texts each run of letters and each sign other than a digit or a space occurs."""
    return Counter(word for text in texts for word in set(re.findall(r"[^\W\d_]+|[^\w\s]", text)))


@pytest.fixture(scope="module")
def english_german() -> Splits:
    return expression_pairs(pairs=12_000, validation=500, test=500)


def assert_promises_hold(splits: Splits) -> None:
    everything = [pair for split in splits.values() for pair in split]
    sources = Counter(source for source, _ in everything)
    assert max(sources.values()) == 1, "a source occurs twice"
    for side in (0, 1):
        texts = {name: {pair[side] for pair in split} for name, split in splits.items()}
        for one, other in [("train", "validation"), ("train", "test"), ("validation", "test")]:
            assert not texts[one] & texts[other], f"side {side} of {one} and {other} overlap"
    for pair in everything:
        assert all(text and text == text.strip() for text in pair), f"empty or padded: {pair!r}"


def assert_every_held_out_word_is_trained(splits: Splits) -> None:
    for side in (0, 1):
        trained = words([pair[side] for pair in splits["train"]])
        for pair in splits["validation"] + splits["test"]:
            for word in words([pair[side]]):
                assert trained[word] >= cldr.SEEN_IN_TRAINING, f"{word!r} of {pair!r} is rare in training"


def test_promises_hold_for_english_german(english_german: Splits) -> None:
    assert {name: len(split) for name, split in english_german.items()} == {
        "train": 12_000,
        "validation": 500,
        "test": 500,
    }
    assert_promises_hold(english_german)
    assert_every_held_out_word_is_trained(english_german)


@pytest.mark.parametrize(("source", "target"), LOCALE_PAIRS)
def test_promises_hold_for_other_locales(source: str, target: str) -> None:
    splits = small_corpus(source, target)
    assert [len(split) for split in splits.values()] == [2_000, 100, 100]
    assert_promises_hold(splits)
    assert_every_held_out_word_is_trained(splits)


@settings(max_examples=examples(6))
@given(st.sampled_from(sorted(locale_identifiers())), st.integers(0, 2**32))
def test_any_locale_of_cldr_can_be_translated_into(identifier: str, seed: int) -> None:
    assume(parse_locale(identifier) != Locale("en"))
    splits = expression_pairs("en", identifier, pairs=800, validation=20, test=20, seed=seed)
    assert [len(split) for split in splits.values()] == [800, 20, 20]
    assert_promises_hold(splits)
    assert not any(
        unit in text
        for split in splits.values()
        for pair in split
        for text in pair
        for unit in cldr_expressions.UNITS.split()
    )  # what Babel writes where it lacks a pattern


def test_same_arguments_same_pairs_and_another_seed_other_pairs() -> None:
    first = small_corpus("en", "de")
    assert small_corpus("en", "de") == first
    other = small_corpus("en", "de", seed=2)
    assert not set(first["test"]) <= set(other["test"])
    assert not set(first["train"]) <= set(other["train"])


def test_pairs_do_not_depend_on_the_hash_seed() -> None:
    # Strings hash differently in every process: iterating over a set would make other splits in each of them.
    script = (
        # By its folder, as a package of its own: the front door would bring torch, which takes seconds.
        f"import sys; sys.path.insert(0, {str(Path(cldr.__file__).parents[3])!r}); "
        "from training.data.built_in.cldr import expression_pairs; "
        "print(expression_pairs(pairs=1000, validation=30, test=30)['test'])"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(prints) == 1


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("ja", "en"), ("id", "en")])
def test_no_source_has_two_readings(source: str, target: str) -> None:
    """The kinds themselves are free of contradictions; splits would hide one by dropping what contradicts."""
    readings: dict[str, set[str]] = {}
    stream = expressions(Locale.parse(source), Locale.parse(target), Random(7))
    for expression in islice(stream, 8_000):
        readings.setdefault(expression.source, set()).add(expression.target)
    assert len(readings) > 7_000
    assert {text: found for text, found in readings.items() if len(found) > 1} == {}


def test_may_is_written_one_way_in_english_and_has_one_german_reading(english_german: Splits) -> None:
    # "May 5, 2012" is both the long and the medium style: the long one counts, German "5. Mai 2012".
    readings = [target for source, target in english_german["train"] if re.fullmatch(r"May \d+, \d{4}", source)]
    assert len(readings) > 5
    assert all(re.fullmatch(r"\d+\. Mai \d{4}", reading) for reading in readings)
    others = [target for source, target in english_german["train"] if re.fullmatch(r"Jun \d+, \d{4}", source)]
    assert others
    assert all(re.fullmatch(r"\d\d\.06\.\d{4}", reading) for reading in others)


def test_names_alone_are_trained_and_never_held_out(english_german: Splits) -> None:
    families = cldr_expressions.name_families(Locale("en"), Locale("de"))
    names = {(say(Locale("en")), say(Locale("de"))) for family in families for say in family}
    assert ("Switzerland", "Schweiz") in names
    assert ("German", "Deutsch") in names
    assert ("Swiss Franc", "Schweizer Franken") in names
    assert len(names) > 130
    assert names <= set(english_german["train"])
    assert not names & {*english_german["validation"], *english_german["test"]}


def test_every_name_is_trained_in_composed_expressions(english_german: Splits) -> None:
    german = [target for _, target in english_german["train"]]
    for family in cldr_expressions.name_families(Locale("en"), Locale("de")):
        for say in family:
            name = say(Locale("de"))
            assert sum(name in text for text in german) >= 10, name


def test_every_kind_is_in_every_split_in_about_the_same_share(english_german: Splits) -> None:
    kind_of: dict[str, str] = {}
    for expression in expressions(Locale("en"), Locale("de"), Random(1)):  # the draws behind the fixture
        kind_of.setdefault(expression.source, expression.kind)
        if len(kind_of) >= 13_500:
            break
    shares = {
        name: {kind: count / len(split) for kind, count in Counter(kind_of.get(pair[0]) for pair in split).items()}
        for name, split in english_german.items()
    }
    for split in ("validation", "test"):
        assert set(shares[split]) == set(KINDS)
        for kind in KINDS:
            # Four standard errors of a share in 500 pairs, at most.
            assert shares[split][kind] == pytest.approx(shares["train"][kind], abs=0.075), (split, kind)


@pytest.mark.parametrize(
    ("kind", "source", "target"),
    [
        (
            "date",
            r"(Mon|Tues|Wednes)day, \w+ \d+, \d{4}",
            r"(Mon|Diens)tag, \d+\. \w+ \d{4}|Mittwoch, \d+\. \w+ \d{4}",
        ),
        ("date", r"(April|September) \d\d?", r"\d+\. (April|September)"),
        ("time", r"12:\d\d\u202fAM", r"00:\d\d"),
        ("datetime", r"\d+/\d+/\d\d, [1-9]:\d\d\u202fPM", r"\d\d\.\d\d\.\d\d, (1[3-9]|2[01]):\d\d"),
        ("number", r"-\d,\d{3}\.\d+", r"-\d\.\d{3},\d+"),
        ("compact number", r"\d\.\d billion", r"\d,\d Milliarden?"),
        ("percentage", r"\d+\.\d+%", r"\d+,\d+\xa0%"),
        ("amount", r"[\d,]+\.\d\d Swiss francs", r"[\d.]+,\d\d Schweizer Franken"),
        ("amount", r"\$[\d,]+\.\d\d", r"[\d.]+,\d\d\xa0\$"),
        ("measurement", r"[\d,.]+ kilometers per hour", r"[\d,.]+ Kilometer pro Stunde"),
        ("measurement", r"1 mile", r"1 Meile"),
        ("relative time", r"\d\d weeks ago", r"vor \d\d Wochen"),
        ("relative time", r"in 1 day", r"in 1 Tag"),
        ("duration", r"\d\d minutes and \d\d seconds", r"\d\d Minuten und \d\d Sekunden"),
        ("list of names", r"\w+, \w+, and Italy", r"\w+, \w+ und Italien"),
        ("list of names", r"\w+ or Japanese", r"\w+ oder Japanisch"),
    ],
)
def test_every_kind_is_translated(kind: str, source: str, target: str) -> None:
    draw = KINDS[kind][0](Locale("en"), Locale("de"))
    assert draw is not None
    rng = Random(3)
    sayings = [draw(rng) for _ in range(3_000)]
    pairs = [(text, say(Locale("de"))) for say in sayings if re.fullmatch(source, text := say(Locale("en")))]
    assert pairs, f"no {kind} is like {source}"
    for pair in pairs:
        assert re.fullmatch(target, pair[1]), pair


def test_half_of_the_sources_have_the_blanks_that_people_type(english_german: Splits) -> None:
    for split in english_german.values():
        times = [source[-3] for source, _ in split if re.search(r"\d\s[AP]M$", source)]
        assert set(times) == {" ", "\u202f"}
        assert 0.25 < times.count(" ") / len(times) < 0.75
    assert not any(" €" in target for split in english_german.values() for _, target in split)


@pytest.mark.parametrize("kind", ["number", "percentage", "amount", "measurement"])
def test_numbers_keep_their_value(kind: str) -> None:
    """English and German write the same digits, and swap the comma and the point."""
    draw = KINDS[kind][0](Locale("en"), Locale("de"))
    assert draw is not None
    rng = Random(11)
    for say in [draw(rng) for _ in range(300)]:
        english, german = (re.findall(r"-?\d[\d,.]*", say(Locale(name))) for name in ("en", "de"))
        assert [text.translate(str.maketrans(",.", ".,")) for text in english] == german


def test_compact_numbers_lose_no_digit_between_counting_systems() -> None:
    # Japanese counts in ten thousands: "270M" is "2.7億". Back again the same value must come out.
    japanese, english = Locale("ja"), Locale("en")
    draw = KINDS["compact number"][0](japanese, english)
    assert draw is not None
    rng = Random(5)
    said = {(say(japanese), say(english)) for say in (draw(rng) for _ in range(3_000))}
    assert ("2.7億", "270M") in said
    assert all(len(re.sub(r"\D", "", source).strip("0")) <= 2 for source, _ in said)


@pytest.mark.parametrize("identifier", ["xx", "english", "pt-BR", "de_", "", "../en"])
def test_an_unknown_locale_is_named_in_one_line(identifier: str) -> None:
    for source, target in [(identifier, "en"), ("en", identifier)]:
        with pytest.raises(ValueError, match=r"'en', 'de' or 'pt_BR'") as error:
            expression_pairs(source, target)
        assert repr(identifier) in str(error.value)
        assert "\n" not in str(error.value)


def test_an_unknown_locale_names_the_nearest_ones() -> None:
    with pytest.raises(ValueError, match=r"'pt_BR'.*written like"):
        parse_locale("pt-BR")


@pytest.mark.parametrize(("source", "target"), [("de", "de"), ("zh_Hant_TW", "zh_TW")])
def test_equal_locales_are_refused(source: str, target: str) -> None:
    with pytest.raises(ValueError, match="translation needs two"):
        expression_pairs(source, target)


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="test=-1"):
        expression_pairs(pairs=100, validation=0, test=-1)
    with pytest.raises(ValueError, match="pairs=150 is too small for validation=1000"):
        expression_pairs(pairs=150)
    with pytest.raises(ValueError, match="pairs=50 is too small for the 1"):
        expression_pairs(pairs=50, validation=0, test=0)


def test_nothing_need_be_held_out() -> None:
    splits = expression_pairs(pairs=400, validation=0, test=0)
    assert [len(split) for split in splits.values()] == [400, 0, 0]


def test_two_digits_name_a_year() -> None:
    # English short dates have two digits of the year, Japanese ones four: the source must tell which century.
    draw = KINDS["date"][0](Locale("en"), Locale("ja"))
    assert draw is not None
    rng = Random(13)
    checked = 0
    for say in [draw(rng) for _ in range(2_000)]:
        if short := re.fullmatch(r"\d+/\d+/(\d\d)", say(Locale("en"))):
            century = "19" if short[1] >= "50" else "20"
            assert say(Locale("ja")).startswith(century + short[1])
            checked += 1
    assert checked > 100


def test_pairs_with_one_target_go_to_one_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real locales seldom share a target; here three source texts do, as three styles of one value would."""

    def draw(rng: Random) -> cldr_expressions.Saying:
        value, style = rng.randrange(1_500), rng.choice("abc")
        return lambda locale: f"{value}{style}" if locale == Locale("en") else f"{value}"

    monkeypatch.setattr(cldr_expressions, "KINDS", {"styles": (lambda source, target: draw, 1)})
    monkeypatch.setattr(cldr, "SEEN_IN_TRAINING", 0)
    splits = expression_pairs("en", "de", pairs=2_000, validation=800, test=800)
    assert [len(split) for split in splits.values()] == [2_000, 800, 800]
    assert_promises_hold(splits)


def test_a_source_with_two_readings_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What contradicts itself although every kind is consistent ("7 জুল": July 7, and 7 joules) is dropped."""

    def draw(rng: Random) -> cldr_expressions.Saying:
        value = rng.randrange(20) if rng.random() < 0.5 else rng.randrange(20, 2_000)
        reading = rng.choice("ab") if value < 20 else "a"
        return lambda locale: f"{value}" if locale == Locale("en") else f"{value}{reading}"

    monkeypatch.setattr(cldr_expressions, "KINDS", {"ambiguous": (lambda source, target: draw, 1)})
    monkeypatch.setattr(cldr, "SEEN_IN_TRAINING", 0)
    names = sum(map(len, cldr_expressions.name_families(Locale("en"), Locale("de"))))
    # All others are asked for, so that by the end each of the twenty has been drawn hundreds of times.
    splits = expression_pairs("en", "de", pairs=names + 1_780, validation=100, test=100)
    sources = {source for split in splits.values() for source, _ in split}
    assert not sources & {str(value) for value in range(20)}
    assert {str(value) for value in range(20, 2_000)} <= sources
