import pyarrow as pa
import pytest

from paperformer.training.data.cleaning.sentence_length import count_characters, count_words, length_ratios


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        (" \t\u00a0", 0),
        ("Thank you.", 2),
        (" a  b\nc\u00a0d ", 4),
        ("привет мир", 2),
        ("谢谢", 1),
        ("我不知道他昨天", 3),
        ("iPhone是手机", 2),
        ("今日は天気がいい", 3),
        ("ขอบคุณครับ", 4),
        ("शुक्रिया जी", 2),
    ],
)
def test_words(text: str, words: int) -> None:
    assert count_words(pa.array([text])).tolist() == [words]


def test_characters_are_not_bytes() -> None:
    assert count_characters(pa.array(["", "größer", "😀"])).tolist() == [0, 6, 1]


def test_length_ratio_is_symmetric_and_smoothed() -> None:
    short, long = pa.array(["é" * 0, "é" * 10, "é"]), pa.array(["a" * 10, "a" * 90, "a"])
    assert length_ratios(short, long).tolist() == [2.0, 5.0, 1.0]
    assert length_ratios(long, short).tolist() == [2.0, 5.0, 1.0]
