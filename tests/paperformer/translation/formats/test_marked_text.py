import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.translation.formats import marked_text
from paperformer.translation.formats.marked_text import AlignedText, Code, MarkedText, TextWithCodes, Token, text_of

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


@pytest.mark.parametrize(
    ("tokens", "translation", "alignment", "expected"),
    [
        # The words change places, and the elements go with them.
        (["I ", OPEN, "have", CLOSE, " eaten it"], "ich habe es gegessen", [(0, 0), (1, 1), (2, 3), (3, 2)],
         "ich <g>habe</g> es gegessen"),
        (["I have ", OPEN, "eaten", CLOSE, " it."], "ich habe es gegessen.", [(0, 0), (1, 1), (2, 3), (3, 2)],
         "ich habe es <g>gegessen</g>."),
        (["a dog on the ", OPEN, "beach", CLOSE, "."], "am Strand ein Hund.", [(0, 2), (1, 3), (2, 0), (3, 0), (4, 1)],
         "am <g>Strand</g> ein Hund."),
        (["on the beach a ", OPEN, "dog", CLOSE, "."], "ein Hund am Strand.", [(4, 1), (2, 3)],
         "ein <g>Hund</g> am Strand."),
        (["a ", OPEN, "big dog", CLOSE, " runs"], "es rennt ein großer Hund", [(1, 3), (2, 4), (3, 1)],
         "es rennt ein <g>großer Hund</g>"),
        (["a ", OPEN, "b ", OPEN, "c", CLOSE, " d", CLOSE, " e"], "V W X Y Z", [(1, 1), (2, 2), (3, 3)],
         "V <g>W <g>X</g> Y</g> Z"),
        (["press ", ALONE, " now"], "jetzt drücken", [(0, 1), (1, 0)], "<x/> jetzt drücken"),
        (["a ", CLOSE, "b"], "A B", [(0, 0), (1, 1)], "A</g> B"),
        (["the ", OPEN, "(old)", CLOSE, " man"], "der (alte) Mann", [(1, 1)], "der <g>(alte)</g> Mann"),
        (["a ", OPEN, "dog", CLOSE, " runs"], 'der "Hund" rennt', [(1, 1)], 'der "<g>Hund</g>" rennt'),
        # Nothing belongs to the word: in proportion.
        (["a dog on the ", OPEN, "beach", CLOSE, "."], "ein Hund am Strand.", [(1, 1)], "ein Hund am <g>Strand</g>."),
        (["a ", OPEN, "b", CLOSE, " c"], "A B", [(1, 7), (9, 0)], "<g>A</g> B"),
    ],
)  # fmt: skip
def test_codes_go_with_the_words_that_the_model_aligns(
    tokens: list[Token], translation: str, alignment: list[tuple[int, int]], expected: str
) -> None:
    marked = MarkedText(tokens)
    assert isinstance(marked.texts[0], TextWithCodes)
    filled = marked.fill([AlignedText(translation, alignment)])
    assert written(filled) == expected
    (difference,) = marked.review(filled)
    assert difference.reason == "inline elements placed by estimate"


def test_a_long_text_with_many_codes_is_searched_only_near_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    inside = marked_text._is_inside_word
    monkeypatch.setattr(marked_text, "_is_inside_word", lambda text, place: looked.append(place) or inside(text, place))
    tokens: list[Token] = ["word "]
    for _ in range(500):
        tokens += [ALONE, "word "]
    filled = written(MarkedText(tokens).fill(["Wort " * 501]))
    assert filled.count("<x/>") == 500
    assert len(looked) < 10 * 500


def test_how_codes_were_placed_is_said() -> None:
    for alignment, how in (([(1, 1)], "around the words that the model aligns"), ([], "in proportion to where the")):
        marked = MarkedText(["a ", OPEN, "dog", CLOSE, " runs"])
        (difference,) = marked.review(marked.fill([AlignedText("ein Hund rennt", alignment)]))
        assert difference.detail.startswith(how)


def test_only_texts_with_codes_inside_want_an_alignment() -> None:
    marked = MarkedText(["one ", OPEN, "two", CLOSE, " three\n", OPEN, "four", CLOSE, "\nfive"])
    assert [isinstance(text, TextWithCodes) for text in marked.texts] == [True, False, False]


def test_texts_go_to_another_process_and_come_back() -> None:
    for text in (TextWithCodes("a b"), AlignedText("A B", [(0, 1)])):
        again = pickle.loads(pickle.dumps(text))
        assert (type(again), again, vars(again)) == (type(text), text, vars(text))


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


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6)


@given(TOKENS, st.text(max_size=20), PAIRS, st.booleans())
def test_all_codes_are_kept_in_their_order_and_no_text_is_lost(
    tokens: list[Token], translation: str, pairs: list[tuple[int, int]], keeps_lines: bool
) -> None:
    marked = MarkedText(tokens, keeps_lines=keeps_lines)
    filled = marked.fill([AlignedText(translation, pairs)] * len(marked.texts))
    assert [token for token in filled if isinstance(token, Code)] == [t for t in tokens if isinstance(t, Code)]
    same = "".join(text_of(marked.fill(marked.texts)).split())
    assert same == "".join("".join(marked.texts).split())
