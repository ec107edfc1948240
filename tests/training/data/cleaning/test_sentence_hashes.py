import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.data.cleaning.sentence_hashes import combined_hashes, exact_hashes, normalized_hashes

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=20)


def are_equal(first: str, second: str) -> bool:
    one, other = normalized_hashes(pa.array([first, second]))
    return bool(one == other)


@given(texts)
def test_exact_hashes_are_equal_where_texts_are(sentences: list[str]) -> None:
    hashes = exact_hashes(pa.array(sentences, pa.string()))
    assert [[a == b for a in hashes] for b in hashes] == [[a == b for a in sentences] for b in sentences]


@given(texts)
def test_a_normalized_hash_does_not_depend_on_the_other_rows(sentences: list[str]) -> None:
    together = normalized_hashes(pa.array(sentences, pa.string()))
    alone = [normalized_hashes(pa.array([sentence]))[0] for sentence in sentences]
    assert together.tolist() == [int(value) for value in alone]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Thank you.", "thank you!"),
        ("to day", "today"),
        ("It's -- well -- fine.", "its well fine"),
        ("STRASSE", "straße"),
        ("Schöne Grüße.", "schöne grüße!"),
        ("„Schön“, sagte er.", '"Schön", sagte er'),
        ("Schön", "Scho\u0308n"),
        ("¿Cómo estás?", "cómo\u00a0estás"),
        ("你好,世界。", "你好 世界"),
        ("ＡＢＣ", "abc"),
        ("می\u200cروم", "میروم"),
        ("ΟΔΟΣ", "οδος"),
        ("Ça va ?", "ça va\u202f?"),
    ],
)
def test_same_words(first: str, second: str) -> None:
    assert first != second
    assert are_equal(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("schon", "schön"),
        ("1 + 1", "1 1"),
        ("?", "!"),
        ("。", "、"),
        ("...", ""),
        ("Room 12", "Room 21"),
        ("हिन्दी", "हनद"),  # vowel signs are neither letters nor punctuation, and make another word
    ],
)
def test_other_words(first: str, second: str) -> None:
    assert not are_equal(first, second)


def test_combined_hashes_tell_halves_apart() -> None:
    a, b = np.array([1, 2, 1, 2], np.uint64), np.array([2, 1, 1, 2], np.uint64)
    assert len(set(combined_hashes(a, b).tolist())) == 4
