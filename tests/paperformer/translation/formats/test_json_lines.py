import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.translation.formats.json_lines import _replaced, _text_at


def test_all_other_fields_stay_as_they_are(translated: Any) -> None:
    lines = (
        '\ufeff{"text": "a %s", "n": 1.0e5, "big": 123456789012345678901234567890, "é": [ 1,2 ]}\r\n'
        '{"text":"b\\u00e9","text":"c"}\n'
        '{"text": "two\\nlines "}'
    )
    result = translated(lines, "jsonl", field="text")
    assert result.content.decode() == (
        '\ufeff{"text": "a %s", "n": 1.0e5, "big": 123456789012345678901234567890, "é": [ 1,2 ], '
        '"translation": "A %s"}\r\n'
        '{"text":"b\\u00e9","text":"c","translation":"C"}\n'
        '{"text": "two\\nlines ", "translation": "TWO\\nLINES "}'
    )
    assert (result.outcome.translated, result.notes) == (3, [])


@pytest.mark.parametrize(
    ("line", "field", "into", "expected"),
    [
        ('{"t": {"en": "a"}}', "t.en", "t.de", '{"t": {"en": "a", "de": "A"}}'),
        ('{"t.en": "a"}', "t.en", "t.en", '{"t.en": "A"}'),
        ('{"en": "a", "de": null, "n": 1}', "en", "de", '{"en": "a", "de": "A", "n": 1}'),
        ('{"en":"a"}', "en", "mt.de.x", '{"en":"a","mt":{"de":{"x":"A"}}}'),
        ('{"en": "a", "mt": {}}', "en", "mt.de", '{"en": "a", "mt": {"de": "A"}}'),
        ('{"en": "ä"}', "en", "", '{"en": "ä", "translation": "Ä"}'),
    ],
)
def test_where_the_translations_go(translated: Any, line: str, field: str, into: str, expected: str) -> None:
    assert translated(line, "jsonl", field=field, into=into).content.decode() == expected


@pytest.mark.parametrize(("source", "written"), [("x", "Öl"), ("\\u00e4", "\\u00d6l"), ("ä\\u00e4", "Öl")])
def test_what_is_escaped_in_a_line_is_so_in_its_translation(translated: Any, source: str, written: str) -> None:
    result = translated(f'{{"t": "{source}"}}\n', "jsonl", lambda texts, note: ["Öl"], field="t")
    assert result.content.decode() == f'{{"t": "{source}", "translation": "{written}"}}\n'


def test_odd_lines_are_told_and_stay_as_they_are(translated: Any) -> None:
    odd = [b"nothing", b"[1]", b'{"t": 4}', b"{}", b'{"t": "a"} x', b'{"t": "\xff"}', b'{"t": {"u": 1}}', b'{"t"; 1}']
    deep = b'{"t":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    lines = b"\n".join([b'{"t": "a"}', *odd, b"", deep, b'{"t": "b", "n": 1}', b'{"t": "c", "translation": {}}'])
    result = translated(lines, "jsonl", field="t")
    written = result.content.split(b"\n")
    assert written[1:-2] == [*odd, b"", deep]
    assert json.loads(written[-2]) == {"t": "b", "n": 1, "translation": "B"}
    assert json.loads(written[-1]) == {"t": "c", "translation": "C"}
    assert [number for number, _ in result.notes] == [2, 3, 4, 5, 6, 7, 8, 9, 11]
    assert result.notes[2] == (4, "'t' is 4, not a string: not translated")
    assert result.notes[3] == (5, "there is no 't' among (none): not translated")
    assert result.outcome.left == {
        "not JSON": 4, "not an object": 1, "not a string": 2, "without the field": 1, "not UTF-8": 1, "empty": 1,
    }  # fmt: skip
    assert result.outcome.translated == 3


def test_half_of_a_surrogate_pair_is_not_translated_and_not_lost(translated: Any) -> None:
    result = translated('{"t": "a\\ud800b"}', "jsonl", field="t")
    assert result.texts == ["ab"]
    assert json.loads(result.content) == {"t": "a\ud800b", "translation": "AB"}


@pytest.mark.parametrize(
    ("content", "field", "said"),
    [
        ('[{"a": 1}]', "a", "x is a JSON list; it must be JSON Lines"),
        ('{"a": 1, "b": 2}', "", "which field is to be translated. Give --field NAME; the first object has 'a', 'b'"),
    ],
)
def test_what_is_missing_is_one_line(translated: Any, content: str, field: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        translated(content, "jsonl", field=field)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), st.booleans(), st.text(max_size=6))
def test_any_object_keeps_all_its_fields(row: dict[str, Any], is_ascii: bool, translation: str) -> None:
    row = {**row, "source": "a"}
    line = json.dumps(row, ensure_ascii=is_ascii)
    assert _text_at(line, "source") == "a"
    assert json.loads(_replaced(line, "translation", translation)) == row | {"translation": translation}
