"""Texts on their way to a trainer."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.tokenization.corpus import CharacterCounts, read


@given(st.lists(st.text() | st.text("ab日\U0001f600")), st.integers(1, 4))
def test_characters_are_counted(texts: list[str], min_frequency: int) -> None:
    counts = CharacterCounts()
    assert list(counts.watch(iter(texts))) == texts
    expected = Counter("".join(texts))
    frequent = counts.frequent(min_frequency)
    assert frequent == sorted(
        (character for character in expected if expected[character] >= min_frequency),
        key=lambda character: (-expected[character], character),
    )


def test_counts_go_on_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paperformer.tokenization.corpus.CHARACTERS_A_BLOCK", 3)
    counts = CharacterCounts()
    list(counts.watch(["ab", "abc", "a", "d"]))
    assert counts.frequent(2) == ["a", "b"]


def test_symbols_are_cut_out_the_longest_first() -> None:
    texts = read(["a<x><xy>b", "<xy>", "c"], normalization="none", user_symbols=["<x", "<x>", "<xy>"])
    assert [text for text in texts if text] == ["a", "b", "c"]


def test_texts_are_normalised_after_that() -> None:
    assert list(read(["ﬁ<2de>e\u0301"], normalization="NFKC", user_symbols=["<2de>"])) == ["fi", "é"]


def test_texts_of_symbols_only_are_empty() -> None:
    with pytest.raises(ValueError, match="texts is empty"):
        list(read(["<2de>"], normalization="none", user_symbols=["<2de>"]))
