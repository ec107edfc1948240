import re

from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.pieces import split_sentences, split_text, split_to_fit

from ..examples import examples


def words_and_end(texts: list[str]) -> list[int]:
    """A tokenizer for which a word of up to 4 letters is a token, and each text has an end mark."""
    return [1 + sum(-(-len(word) // 4) for word in text.split()) for text in texts]


def test_a_text_that_fits_is_left_alone() -> None:
    text = "One. Two! Three?"
    assert split_to_fit(text, 6, words_and_end) == [text]


def test_sentences_come_one_by_one() -> None:
    text = 'He said: "Go on!" She did (at 5 p.m.) It rained… Why?'
    assert split_to_fit(text, 7, words_and_end) == ['He said: "Go on!"', "She did (at 5 p.m.)", "It rained…", "Why?"]


def test_a_point_inside_a_word_or_a_number_ends_nothing() -> None:
    assert split_to_fit("It is 3.5 at www.a.org now. Yes.", 9, words_and_end) == ["It is 3.5 at www.a.org now.", "Yes."]


def test_a_long_sentence_is_cut_behind_clauses_that_are_kept_together_while_they_fit() -> None:
    text = "a b c, d e, f g h i, j"
    assert split_to_fit(text, 6, words_and_end) == ["a b c, d e,", "f g h i, j"]


def test_words_are_cut_only_where_nothing_else_helps() -> None:
    assert split_to_fit("a b c d e f g", 4, words_and_end) == ["a b c", "d e f", "g"]
    assert split_to_fit("abcdefghijklmnop", 3, words_and_end) == ["abcdefgh", "ijklmnop"]


def test_chinese_has_no_blanks() -> None:
    def characters(texts: list[str]) -> list[int]:
        return [len(text) + 1 for text in texts]

    text = "今天天气很好。我们去公园,孩子们都很高兴,晚上回家。"
    pieces = split_to_fit(text.replace(",", "，"), 12, characters)
    assert pieces == ["今天天气很好。", "我们去公园，", "孩子们都很高兴，", "晚上回家。"]


@given(st.text(st.sampled_from("ab.,! \n。，é"), max_size=200), st.integers(2, 12))
@settings(max_examples=examples(300))
def test_nothing_is_lost_and_everything_fits(text: str, longest: int) -> None:
    pieces = split_to_fit(text, longest, words_and_end)
    assert re.sub(r"\s", "", "".join(pieces)) == re.sub(r"\s", "", text)
    assert all(words_and_end([piece])[0] <= longest for piece in pieces)
    assert all(piece and piece == piece.strip() for piece in pieces)


def test_a_megabyte_is_cut_without_counting_it_again_and_again() -> None:
    counted = 0

    def lengths(texts: list[str]) -> list[int]:
        nonlocal counted
        counted += sum(map(len, texts))
        return words_and_end(texts)

    for text in ("word " * 200_000, "A sentence. " * 80_000, "x" * 1_000_000):
        counted = 0
        pieces = split_to_fit(text, 100, lengths)
        assert sum(map(len, pieces)) >= len(text.replace(" ", ""))
        assert counted < 25 * len(text)


def test_what_ends_a_sentence() -> None:
    for sentences in (
        ["Dr. Smith met J. R. Jones at 5 p.m. ", "He left."],
        ["Am 3. März kam er. ", "Sie ging z. B. heim. ", "Gut."],
        ['"Stop!" she said. ', '"No." ', "Yes?! ", "(See Fig. 3.) ", "End"],
        ["1. Wash. ", "2. Dry… ", "In 1990. ", "Then"],
        ["今天天气很好。", "我们去公园！", "好"],
        ["Well... no. ", "Das ist usw. ", "Ende"],
    ):
        assert split_sentences("".join(sentences)) == sentences


@given(st.text(st.sampled_from("aB.! \n\r\t\x85。3"), max_size=100), st.booleans(), st.integers(2, 12))
@settings(max_examples=examples(300))
def test_pieces_and_gaps_are_the_text(text: str, sentences: bool, longest: int) -> None:
    pieces, gaps = split_text(text, longest, words_and_end, sentences=sentences)
    if not text.strip():
        assert pieces == gaps == []
        return
    assert len(gaps) == len(pieces) + 1
    assert all(piece and piece == piece.strip() and len(piece.splitlines()) == 1 for piece in pieces)
    assert all(gap.isspace() or not gap for gap in gaps)
    together = gaps[0] + "".join(map("".join, zip(pieces, gaps[1:], strict=True)))
    assert re.sub(r"[ \t]", "", together) == re.sub(r"[ \t]", "", text)  # every line end is where it was
    if "。" not in text and words_and_end([text])[0] <= longest:
        assert together == text
