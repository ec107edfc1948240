import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.translation.formats.marked_text import Code, MarkedText, Token, text_of

OPEN, CLOSE, ALONE = Code("<g>", "open"), Code("</g>", "close"), Code("<x/>")


def written(tokens: list[Token]) -> str:
    return "".join(token if isinstance(token, str) else token.raw for token in tokens)


@pytest.mark.parametrize(
    ("tokens", "translation", "expected"),
    [
        (["a dog"], "ein Hund", "ein Hund"),
        ([" ", OPEN, "a dog", CLOSE, ALONE, " \n"], "ein Hund", " <g>ein Hund</g><x/> \n"),
        (["a dog on the ", OPEN, "beach", CLOSE, "."], "ein Hund am Strand.", "ein Hund am <g>Strand</g>."),
        (["a ", OPEN, "big dog", CLOSE, " runs"], "ein großer Hund rennt", "ein <g>großer Hund</g> rennt"),
        (["press ", ALONE, " now"], "jetzt drücken", "jetzt <x/> drücken"),
        (["go to ", ALONE, " x"], "gehen", "gehen <x/>"),
        (["first", ALONE, "second"], "erstes zweites", "erstes<x/> zweites"),
        ([OPEN, "a", CLOSE, " b ", OPEN, "c", CLOSE], "", "<g></g><g></g>"),
        (["aa", ALONE, "aa"], "abe\u0301", "<x/>abe\u0301"),
        (["one ", OPEN, "two", CLOSE, " three"], "一二三四五六", "一二<g>三</g>四五六"),
    ],
)
def test_codes_at_the_ends_stay_there_and_those_inside_go_between_words(
    tokens: list[Token], translation: str, expected: str
) -> None:
    assert written(MarkedText(tokens).fill([translation])) == expected


def test_only_codes_inside_are_estimated() -> None:
    assert not MarkedText([OPEN, "a dog", CLOSE]).review(["ein Hund"])
    (difference,) = MarkedText(["a ", OPEN, "dog", CLOSE, "."]).review(["ein Hund"])
    assert difference.reason == "inline elements placed by estimate"


def test_a_text_is_translated_line_by_line_and_segment_by_segment() -> None:
    segment = Code("<mrk>", "open", is_boundary=True), Code("</mrk>", "close", is_boundary=True)
    marked = MarkedText(["  one\n\n two ", segment[0], "three. ", segment[1], segment[0], "four", segment[1]])
    assert marked.texts == ["one", "two", "three.", "four"]
    assert written(marked.fill(["1", "2", "3", "4"])) == "  1\n\n 2 <mrk>3 </mrk><mrk>4</mrk>"


def test_where_white_space_means_nothing_a_text_is_one_line() -> None:
    marked = MarkedText(["\n  one\n  two ", OPEN, " three", CLOSE, "\n"], keeps_lines=False)
    assert marked.texts == ["one two three"]
    assert written(marked.fill(["EINS ZWEI DREI"])) == "\n  EINS ZWEI <g>DREI</g>\n"


def test_an_empty_translation_is_to_be_looked_at() -> None:
    assert [difference.reason for difference in MarkedText(["a"]).review([""])] == ["empty translations"]


TOKENS = st.lists(st.text(max_size=8) | st.sampled_from([OPEN, CLOSE, ALONE]), max_size=8)


@given(TOKENS, st.text(max_size=20), st.booleans())
def test_all_codes_are_kept_in_their_order_and_no_text_is_lost(
    tokens: list[Token], translation: str, keeps_lines: bool
) -> None:
    marked = MarkedText(tokens, keeps_lines=keeps_lines)
    filled = marked.fill([translation] * len(marked.texts))
    assert [token for token in filled if isinstance(token, Code)] == [t for t in tokens if isinstance(t, Code)]
    same = "".join(text_of(marked.fill(marked.texts)).split())
    assert same == "".join("".join(marked.texts).split())
