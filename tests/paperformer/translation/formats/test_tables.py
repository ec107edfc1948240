import csv
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.translation.formats import raw_lines
from paperformer.translation.formats.file_formats import read_records
from paperformer.translation.formats.names import FormatOptions

MARK = b"\xef\xbb\xbf"


def test_rows_are_those_of_the_file_with_a_column_more(translated: Any) -> None:
    rows = MARK + b'id,source,"a note"\r\n1,"a, ""b""\nsecond line ", x \r\n"2",c,\r\n3,"","d"'
    result = translated(rows, "csv", column="source")
    assert result.content == (
        MARK + b'id,source,"a note",translation\r\n1,"a, ""b""\nsecond line ", x ,"A, ""B""\nSECOND LINE "\r\n'
        b'"2",c,,C\r\n3,"","d",'
    )
    assert result.texts == ['a, "b"', "second line", "c"]
    assert (result.outcome.translated, result.outcome.left, result.notes) == (2, {"empty": 1}, [])


def test_in_tab_separated_values_a_quote_is_a_character_like_any_other(translated: Any) -> None:
    result = translated('1\tsay "hello\n2\t"\n', "tsv", column="2")
    assert result.content == b'1\tsay "hello\tSAY "HELLO\n2\t"\t"\n'


def test_a_translation_breaks_no_row(translated: Any) -> None:
    breaking = lambda texts, note: ["a\tb\nc\rd" for _ in texts]  # noqa: E731
    assert translated("x\ty\n", "tsv", breaking, column="1").content == b"x\ty\ta b c d\n"
    assert translated("x,y\n", "csv", lambda texts, note: ['a,"b'], column="1").content == b'x,y,"a,""b"\n'


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"column": "en", "into": "de"}, b"en,de,n\na,A,1\n"),
        ({"column": "en", "into": "en"}, b"en,de,n\nA,,1\n"),
        ({"column": "1", "header": True, "into": "is"}, b"en,de,n,is\na,,1,A\n"),
        ({"column": "1", "into": "3"}, b"en,de,EN\na,,A\n"),
        ({"column": "1"}, b"en,de,n,EN\na,,1,A\n"),
    ],
)
def test_where_the_translations_go(translated: Any, options: dict[str, Any], expected: bytes) -> None:
    assert translated("en,de,n\na,,1\n", "csv", **options).content == expected


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_is_that_by_which_the_header_has_the_column(translated: Any, separator: str) -> None:
    rows = "id,source\n1,a\n".replace(",", separator)
    assert translated(rows, "csv", column="source").content.decode() == "id,source,translation\n1,a,A\n".replace(
        ",", separator
    )


def test_odd_rows_are_told_and_none_is_lost(translated: Any) -> None:
    rows = b'id,source\n1\n\n2,a,b,c\n3,"x"y\n4,x\xffy\x07z\n5,"open\n6,d\n'
    result = translated(rows, "csv", column="source")
    assert result.content == (
        b'id,source,translation\n1,,\n\n2,a,A,b,c\n3,"x"y,\n4,x\xffy\x07z,XY Z\n5,"open,\n6,d,D\n'
    )
    assert result.content.count(b"\n") == rows.count(b"\n")
    assert [(number, what.partition(":")[0]) for number, what in result.notes] == [
        (2, "columns"),
        (4, "columns"),
        (5, "a quoted field goes on behind its closing quote (quotes inside are to be doubled)"),
        (6, "what is not UTF-8 was left out, 0xff at byte 2 and no other"),
        (6, "control characters were taken for blanks, the first is U+0007"),
        (7, "its quote is not closed"),
    ]
    assert result.outcome.left == {"without the column": 1, "empty": 1, "not CSV": 2}


def test_a_line_that_is_too_long_is_kept_in_parts(translated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_lines, "LONGEST_LINE", 10)
    rows = b"a\tb\n" + b"x" * 35 + b"\nc\td\n"
    for block in (1, 7, 100):
        result = translated(rows, "tsv", block=block, column="1")
        assert result.content == b"a\tb\tA\n" + b"x" * 35 + b"\t\nc\td\tC\n"
        assert (result.records, result.outcome.left) == (6, {"too long": 1})
    assert translated(b"a,b\n" + b"x" * 35 + b"\nc,d\n", "csv", column="1").content.endswith(b"x,\nc,d,C\n")


def test_placeholders_and_numbers_are_compared(translated: Any) -> None:
    result = translated("save %s\npage 3\nfine\n", "tsv", lambda texts, note: ["a", "b 4", "c"], column="1")
    assert result.outcome.flagged == {"other placeholders or tags": 1, "other numbers": 1}
    assert result.notes[1] == (2, "other numbers (missing: 3; not in the source: 4)")
    assert result.outcome.describe("rows") == (
        "3 rows translated; to be looked at: 1 other numbers, 1 other placeholders or tags"
    )


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("a,b\n1,2\n", {}, r"which column .* Give --column NAME, .*; its columns are 'a', 'b'"),
        ("a,b\n", {"column": "c"}, "x has no column 'c'; its columns are 'a', 'b'"),
        ("a,a\n", {"column": "a"}, "several columns 'a'; give a number"),
        ("a,b\n", {"column": "3"}, "no column '3'; its first row has 2"),
        ("a,b\n", {"column": "a", "into": "3"}, "no column '3'; its columns are 'a', 'b'"),
        (b"\xff\xfea\0", {"column": "a"}, "x is UTF-16, by its first bytes; convert it to UTF-8"),
    ],
)
def test_a_column_that_is_not_there_is_one_line(translated: Any, content: Any, options: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        translated(content, "csv", **options)


def test_an_empty_file_stays_empty(translated: Any) -> None:
    assert translated("", "csv", column="a").content == b""


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@given(st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=6), st.integers(1, 9), st.booleans())
def test_a_table_of_any_text_is_as_the_library_reads_it(rows: list[list[str]], block: int, quotes: bool) -> None:
    """Python's csv writes the table, and reads ours: the same cells, and one more that is the second again."""
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL if quotes else csv.QUOTE_MINIMAL).writerows(rows)
    raw = io.BytesIO(file.getvalue().encode())
    records = read_records(lambda count: raw.read(min(count, block)), "x", "csv", FormatOptions(column="2"))
    content = b"".join(record.write(record.texts).content for record in records)
    found = list(csv.reader(io.StringIO(content.decode(), newline="")))
    assert [row[:3] for row in found] == rows
    for (_, source, _), translation in zip(rows, (row[3] for row in found), strict=True):
        assert "".join(translation.split()) == "".join(raw_lines_of(source).split())


def raw_lines_of(text: str) -> str:
    """The text without what is not translated: control characters, and what XML does not have."""
    from paperformer.translation.formats.marked_text import MarkedText, text_of

    marked = MarkedText([text])
    return text_of(marked.fill(marked.texts))
