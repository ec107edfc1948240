import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.data.cleaning.control_characters import has_control_characters


def found(text: str) -> bool:
    return bool(has_control_characters(pa.array([text]))[0])


def is_wrong(char: str) -> bool:
    """The same rule by character properties, which is slow."""
    code = ord(char)
    is_noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    return (
        (unicodedata.category(char) in ("Cc", "Co") and char not in "\t\n\r")
        or char == "\ufffd"
        or is_noncharacter
        or 0x40000 <= code < 0xE0000
    )


def test_every_character_of_unicode() -> None:
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    result = has_control_characters(pa.array(characters))
    assert {char for char, is_found in zip(characters, result, strict=True) if is_found} == set(
        filter(is_wrong, characters)
    )


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=10))
def test_anywhere_in_any_row(texts: list[str]) -> None:
    result = has_control_characters(pa.array(texts, pa.string()))
    assert result.tolist() == [any(map(is_wrong, text)) for text in texts]


@pytest.mark.parametrize("text", ["bell\x07", "\x00", "caf\x85", "delete\x7f", "mark \ufffd", "\ue000", "\U0010ffff"])
def test_damage_is_found(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize(
    "text",
    [
        "tab\tline\nfeed\r\n",
        "soft\u00adhyphen, no-break\u00a0space, byte order mark \ufeff",
        "می\u200cروم",  # a zero-width non-joiner inside a Persian word
        "क्\u200dष",  # a zero-width joiner in Devanagari
        "\u200fעברית\u200e (\u2066abc\u2069) \u061c",  # marks of direction
        "👩\u200d👩\u200d👧 ❤\ufe0f \U0001f3f4\U000e0067\U000e0062\U000e007f",  # emoji with joiners, selectors and tags
        "葛\U000e0100",  # an ideographic variation
        "𠀀 𒀀 𝔘",  # characters beyond the basic plane
        "",
    ],
)
def test_ordinary_text_is_not(text: str) -> None:
    assert not found(text)
