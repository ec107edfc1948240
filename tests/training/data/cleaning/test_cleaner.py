import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.data.built_in.cldr import expression_pairs
from paperformer.training.data.cleaning import cleaner as cleaner_module
from paperformer.training.data.cleaning.cleaner import Cleaner, RowCleaner
from paperformer.training.data.cleaning.leaks import Leaks
from paperformer.training.data.text.chunks import PAIR_SCHEMA, TEXT_SCHEMA, pair_chunk, text_chunk
from paperformer.training.recipe.cleaning import Cleaning

Pair = tuple[str, str]
Row = tuple[str, bool]

OFF: dict[str, Any] = {
    "normalization": "none",
    "strip": False,
    "control_characters": False,
    "mojibake": False,
    "max_characters": 0,
    "max_length_ratio": 0,
    "drop_copies": False,
    "leak_check": False,
    "duplicates": "keep",
}
"""Nothing but the check for empty rows."""


def cut(chunk: pa.RecordBatch, sizes: Sequence[int]) -> list[pa.RecordBatch]:
    """Cuts a chunk into chunks of these sizes, and one of what is left."""
    chunks, start = [], 0
    for size in sizes:
        chunks.append(chunk.slice(start, size))
        start = min(start + size, len(chunk))
    return [*chunks, chunk.slice(start)]


def pairs_of(pairs: Sequence[Pair]) -> pa.RecordBatch:
    return pair_chunk([source for source, _ in pairs], [target for _, target in pairs])


def clean_pairs(
    pairs: Sequence[Pair], sizes: Sequence[int] = (), evaluation: Leaks | None = None, **options: Any
) -> tuple[list[Pair], Cleaner]:
    cleaner = Cleaner(Cleaning(**options), ("en", "de"), evaluation)
    chunks = [cleaner.clean(chunk) for chunk in cut(pairs_of(pairs), sizes)]
    assert all(chunk.schema == PAIR_SCHEMA for chunk in chunks)
    return [(row["source"], row["target"]) for chunk in chunks for row in chunk.to_pylist()], cleaner


def clean_text(
    rows: Sequence[Row], sizes: Sequence[int] = (), evaluation: Leaks | None = None, **options: Any
) -> tuple[list[Row], Cleaner]:
    cleaner = Cleaner(Cleaning(**options), ("en",), evaluation)
    chunk = text_chunk([text for text, _ in rows], [begins for _, begins in rows])
    chunks = list(cleaner.clean_all(cut(chunk, sizes)))
    assert all(chunk.schema == TEXT_SCHEMA for chunk in chunks)
    return [(row["text"], row["begins"]) for chunk in chunks for row in chunk.to_pylist()], cleaner


def dropped(cleaner: Cleaner) -> dict[str, int]:
    return {reason: count for reason, count in cleaner.report.dropped.items() if count}


# Reason, the option that turns the check on, pairs that it drops, and pairs that it only just keeps.
CHECKS: list[tuple[str, dict[str, Any], list[Pair], list[Pair]]] = [
    ("empty", {}, [("", "x"), ("x", ""), ("x", " \u00a0\t")], [("x", "y")]),
    ("control characters", {"control_characters": True}, [("a\x07", "b"), ("a", "\ufffd")], [("a\tb", "b\u200d")]),
    ("mojibake", {"mojibake": True}, [("schÃ¶n", "fine"), ("fine", "schÃ¶n")], [("schön", "NÃO")]),
    ("too few words", {"min_words": 2}, [("a b", "c"), ("a", "c d")], [("a b", "c d"), ("我不知道", "c d")]),
    ("too long", {"max_characters": 5}, [("é" * 6, "a"), ("a", "é" * 6)], [("é" * 5, "a" * 5)]),
    ("length ratio", {"max_length_ratio": 2}, [("a" * 5, "b" * 21), ("b" * 21, "a" * 5)], [("a" * 5, "b" * 20)]),
    (
        "copy of the source",
        {"drop_copies": True},
        [("one two three four", "one two three four")],
        [("New York City", "New York City"), ("one two three four", "one two three Four")],
    ),
]
IDS = [check[0] for check in CHECKS]


@pytest.mark.parametrize(("reason", "options", "bad", "good"), CHECKS, ids=IDS)
def test_each_check(reason: str, options: dict[str, Any], bad: list[Pair], good: list[Pair]) -> None:
    kept, cleaner = clean_pairs([*bad, *good, *bad], **{**OFF, **options})
    assert kept == good
    assert dropped(cleaner) == {reason: 2 * len(bad)}
    assert cleaner.report.examples[reason] == [list(pair) for pair in [*bad, *bad][:3]]


@pytest.mark.parametrize(("reason", "options", "bad", "good"), CHECKS[1:], ids=IDS[1:])
def test_each_check_can_be_turned_off(reason: str, options: dict[str, Any], bad: list[Pair], good: list[Pair]) -> None:
    kept, cleaner = clean_pairs([*bad, *good], **OFF)
    assert kept == [*bad, *good]
    assert reason not in cleaner.report.dropped


def test_duplicates_are_of_the_whole_pair() -> None:
    pairs = [("Hi.", "Hallo."), ("Hi.", "Na?"), ("Hey.", "Hallo."), ("hi", "hallo"), ("Hi.", "Hallo.")]
    assert clean_pairs(pairs, **OFF)[0] == pairs
    assert clean_pairs(pairs, **{**OFF, "duplicates": "exact"})[0] == pairs[:4]
    kept, cleaner = clean_pairs(pairs, **{**OFF, "duplicates": "normalized"})
    assert kept == pairs[:3]
    assert cleaner.report.examples["duplicate"] == [["hi", "hallo"], ["Hi.", "Hallo."]]


def test_sides_are_not_run_together() -> None:
    pairs = [("a b", "c"), ("a", "b c"), ("ab", "c"), ("a", "bc")]
    assert clean_pairs(pairs, **{**OFF, "duplicates": "exact"})[0] == pairs
    assert clean_pairs(pairs, **{**OFF, "duplicates": "normalized"})[0] == pairs[:2]  # white space is no difference


words = st.sampled_from(["a", "b", "A", "a ", "e\u0301", "é", "", "\x07", "schÃ¶n", "a b c d", "x" * 99])
pairs_strategy = st.lists(st.tuples(words, words), max_size=40)
sizes_strategy = st.lists(st.integers(0, 10), max_size=8)


@given(pairs_strategy, sizes_strategy, st.sampled_from(["keep", "exact", "normalized"]))
def test_chunks_make_no_difference_and_counts_add_up(pairs: list[Pair], sizes: list[int], duplicates: str) -> None:
    leaks = Leaks([pair_chunk(["b"], ["a"])])
    options: dict[str, Any] = {"duplicates": duplicates, "max_length_ratio": 3, "max_characters": 90}
    kept, cleaner = clean_pairs(pairs, evaluation=leaks, **options)
    assert cleaner.report.rows == len(pairs)
    assert cleaner.report.kept == len(kept) == len(pairs) - sum(cleaner.report.dropped.values())
    for reason, rows in cleaner.report.examples.items():
        assert len(rows) == min(cleaner.report.dropped[reason], 3)

    in_chunks, other = clean_pairs(pairs, sizes, leaks, **options)
    assert in_chunks == kept
    assert other.report.to_dict() == cleaner.report.to_dict()
    json.dumps(cleaner.report.to_dict())


class NoEnglish:
    """Stands for py3langid."""

    def __init__(self, languages: Sequence[str]):
        pass

    def is_other(self, texts: Sequence[str], language: str) -> Any:
        return np.array([language == "en" and text in ("b", "A") for text in texts], np.bool_)


@given(pairs_strategy, sizes_strategy, st.sampled_from(["keep", "exact", "normalized"]), st.booleans())
def test_parts_that_were_examined_elsewhere_make_no_difference(
    pairs: list[Pair], sizes: list[int], duplicates: str, is_text: bool
) -> None:
    options = Cleaning(duplicates=duplicates, max_length_ratio=3, language_identification=True)  # type: ignore[arg-type]
    if is_text:
        languages: tuple[str, ...] = ("en",)
        # Every part begins with a document, and some documents have several rows.
        parts = [
            text_chunk(rows["source"], [index == 0 or target != "a" for index, target in enumerate(rows["target"])])
            for rows in map(pa.RecordBatch.to_pydict, cut(pairs_of(pairs), sizes))
        ]
        leaks = Leaks([text_chunk(["x" * 99])])
    else:
        languages, parts, leaks = ("en", "de"), cut(pairs_of(pairs), sizes), Leaks([pair_chunk(["b"], ["a"])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaner_module, "LanguageIdentifier", NoEnglish)
        whole, joined = Cleaner(options, languages, leaks), Cleaner(options, languages, leaks)
        expected = [row for chunk in whole.clean_all(parts) for row in chunk.to_pylist()]
        found = []
        for part in parts:
            rows = RowCleaner(options, languages, leaks, identifies=True)
            examined = list(rows.examine_all([part]))
            report = json.loads(json.dumps(rows.report.to_dict()))
            found += [row for chunk in joined.clean_part(examined, report) for row in chunk.to_pylist()]
    assert found == expected
    assert joined.report.to_dict() == whole.report.to_dict()


@given(pairs_strategy, sizes_strategy)
def test_the_first_of_equal_pairs_is_kept(pairs: list[Pair], sizes: list[int]) -> None:
    kept, _ = clean_pairs(pairs, sizes, **{**OFF, "duplicates": "exact"})
    assert kept == list(dict.fromkeys(pair for pair in pairs if all(side.strip() for side in pair)))


def test_a_row_counts_under_the_first_reason() -> None:
    leaks = Leaks([pair_chunk(["One two three four.", "x"], ["Eins zwei drei vier.", "y"])])
    long = "one two three four " * 6
    pairs = [
        ("\x07 Ã¶", ""),
        ("Ã¶ Ã¤ Ã¼", ""),
        ("", long),
        ("a", long),
        (long, "one two"),
        (long[:80], "one two"),
        ("one two three four", "one two three four"),
        ("one two three four", "eins zwei"),
        ("one two", "eins zwei"),
        ("one two", "eins zwei"),
    ]
    kept, cleaner = clean_pairs(
        pairs, evaluation=leaks, min_words=2, max_characters=100, max_length_ratio=3, duplicates="normalized"
    )
    assert kept == [("one two", "eins zwei")]
    assert list(cleaner.report.dropped.items()) == [
        ("control characters", 1),
        ("mojibake", 1),
        ("empty", 1),
        ("too few words", 1),
        ("too long", 1),
        ("length ratio", 1),
        ("copy of the source", 1),
        ("also in the evaluation sets", 1),
        ("duplicate", 1),
    ]


def test_pairs_are_normalised_and_stripped_before_they_are_compared() -> None:
    pairs = [("  scho\u0308n ", "½"), ("schön", "½")]
    assert clean_pairs(pairs)[0] == [("schön", "½")]
    assert clean_pairs(pairs, normalization="NFKC")[0] == [("schön", "1⁄2")]
    assert clean_pairs(pairs, normalization="none")[0] == [("scho\u0308n", "½"), ("schön", "½")]
    assert clean_pairs(pairs, strip=False)[0] == [("  schön ", "½"), ("schön", "½")]


def test_mojibake_is_seen_before_nfkc_hides_it() -> None:
    assert dropped(clean_pairs([("fÃ¼r", "for")], normalization="NFKC")[1]) == {"mojibake": 1}


def test_leaks_are_dropped_unless_the_check_is_off() -> None:
    leaks = Leaks([pair_chunk(["Where is the station?"], ["Wo ist der Bahnhof?"])])
    pairs = [("where is the station", "x"), ("where is the exit", "x")]
    assert clean_pairs(pairs, evaluation=leaks)[0] == pairs[1:]
    assert clean_pairs(pairs, evaluation=leaks, leak_check=False)[0] == pairs
    assert clean_pairs(pairs)[0] == pairs


@pytest.mark.parametrize("locale", ["ar", "de", "fa", "fr", "he", "hi", "ja", "ko", "ru", "th", "tr", "uk", "vi", "zh"])
def test_ordinary_text_of_every_script_survives(locale: str) -> None:
    pairs = expression_pairs("en", locale, pairs=600, validation=0, test=0)["train"]
    kept, cleaner = clean_pairs(pairs)
    assert kept == pairs
    assert dropped(cleaner) == {}


def test_language_identification_looks_at_each_side() -> None:
    pytest.importorskip("py3langid", reason="needs the extra langid")
    english, german = "Where is the station, please?", "Wo ist bitte der Bahnhof?"
    pairs = [(english, german), (german, english), (english, english[:-1]), (german[:-1], german), ("OK", "OK")]
    kept, cleaner = clean_pairs(pairs, language_identification=True)
    assert kept == [(english, german), ("OK", "OK")]
    assert dropped(cleaner) == {"another language": 3}


# Running text


def test_documents_of_one_row_are_checked_and_keep_their_white_space() -> None:
    rows = [(text, True) for text in ["  a\n", " \n", "a", "  a\n", "e\u0301", "x\x07", "y" * 5000]]
    kept, cleaner = clean_text(rows)
    assert kept == [("  a\n", True), ("a", True), ("é", True), ("y" * 5000, True)]
    assert dropped(cleaner) == {"control characters": 1, "empty": 1, "duplicate": 1}


def test_joined_lines_are_normalised_and_checked_for_damage_alone() -> None:
    rows = [
        ("a", True),
        ("", False),
        ("a", False),
        ("e\u0301", False),
        ("a\x07", False),
        ("schÃ¶n", False),
        ("a", False),
    ]
    kept, cleaner = clean_text(rows, min_words=2)
    assert kept == [("a", True), ("", False), ("a", False), ("é", False), ("a", False)]
    assert dropped(cleaner) == {"control characters": 1, "mojibake": 1}


def test_the_next_row_that_is_kept_begins_the_document() -> None:
    rows = [("x", True), ("\x07", True), ("\x07", False), ("a", False), ("b", False), ("\x07", True), ("c", True)]
    for sizes in ([], [1] * 7, [3], [2, 0, 3]):
        assert clean_text(rows, sizes)[0] == [("x", True), ("a", True), ("b", False), ("c", True)]


texts_strategy = st.lists(st.tuples(st.sampled_from(["a", "b", "", "\x07"]), st.booleans()), max_size=30)


@given(texts_strategy, sizes_strategy)
def test_running_text_in_any_chunks(rows: list[Row], sizes: list[int]) -> None:
    number, numbers = 0, []
    for _, begins in rows:
        number += begins
        numbers.append(number)
    expected: list[Row] = []
    seen, begun = set[str](), set[int]()
    for (text, begins), number in zip(rows, numbers, strict=True):
        is_document = begins and numbers.count(number) == 1
        if text == "\x07" or (is_document and (text == "" or text in seen)):
            continue
        if is_document:
            seen.add(text)
        expected.append((text, number not in begun))
        begun.add(number)
    kept, cleaner = clean_text(rows, sizes)
    assert kept == expected
    assert cleaner.report.kept == len(expected)
    assert cleaner.report.rows == len(rows)


def test_documents_of_the_evaluation_sets_are_dropped_and_their_lines_counted() -> None:
    long = "It was the best of times, it was the worst of times, wrote Dickens."
    leaks = Leaks([text_chunk([long, "CHAPTER ONE"])])
    kept, cleaner = clean_text([(long, True), ("CHAPTER ONE", True)], evaluation=leaks)
    assert kept == [("CHAPTER ONE", True)]
    assert dropped(cleaner) == {"also in the evaluation sets": 1}
    assert cleaner.report.leaked_lines == 0

    joined = [("x", True), (long, False), ("CHAPTER ONE", False), (long, False)]
    kept, cleaner = clean_text(joined, evaluation=leaks)
    assert kept == joined
    assert dropped(cleaner) == {}
    assert cleaner.report.to_dict()["leaked_lines"] == 2
    assert clean_text(joined, evaluation=leaks, leak_check=False)[1].report.leaked_lines == 0
    json.dumps(cleaner.report.to_dict())


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("normalization", "NFD", "normalization is 'NFD'; it must be one of none, NFC, NFKC"),
        ("duplicates", "drop", "duplicates is 'drop'; it must be one of keep, exact, normalized"),
        ("min_words", 0, "min_words is 0; it must be at least 1"),
        ("max_characters", -1, "max_characters is -1; it must be at least 0"),
        ("max_length_ratio", 0.5, "max_length_ratio is 0.5; it must be 0 or at least 1"),
        ("max_length_ratio", float("nan"), "max_length_ratio is nan; it must be 0 or at least 1"),
    ],
)
def test_wrong_options(option: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Cleaning(**{option: value})
