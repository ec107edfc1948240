import bz2
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.readers.json_lines import JsonLines
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.chunks import PAIR_SCHEMA, TEXT_SCHEMA
from paperformer.training.data.text.lines import LONGEST_LINE

from ....examples import examples

BOM = b"\xef\xbb\xbf"


def rows_of(source: JsonLines, bad: BadLines | None = None) -> list[tuple[str, ...]]:
    rows = []
    for chunk in source.chunks(bad or BadLines()):
        chunk.validate(full=True)
        assert chunk.num_rows > 0
        assert chunk.schema == (PAIR_SCHEMA if len(source.columns) == 2 else TEXT_SCHEMA)
        texts = [column.to_pylist() for column in chunk.columns if pa.types.is_string(column.type)]
        rows += zip(*texts, strict=True)
    return rows


def json_lines(folder: Path, content: bytes | str, *columns: str) -> JsonLines:
    path = folder / "t.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return JsonLines(path=path, columns=columns or ("en", "de"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json_lines")


def test_pairs_in_any_order_of_keys(tmp_path: Path) -> None:
    content = '{"en": "dog", "de": "Hund"}\n {"id": 1e400, "de": "\\u00e4\\ud83d\\ude00", "en": ""}\t\r\n'
    assert rows_of(json_lines(tmp_path, content)) == [("dog", "Hund"), ("", "ä😀")]


def test_one_column_is_running_text(tmp_path: Path) -> None:
    (chunk,) = json_lines(tmp_path, '{"text": "a\\nb"}\n{"text": ""}', "text").chunks(BadLines())
    assert chunk.to_pydict() == {"text": ["a\nb", ""], "begins": [True, True]}


def test_keys_of_nested_objects(tmp_path: Path) -> None:
    content = '{"translation": {"en": "dog", "de": "Hund"}, "translation.en": "cat", "a": {"b": {"c": "x"}}}'
    assert rows_of(json_lines(tmp_path, content, "translation.de", "a.b.c")) == [("Hund", "x")]
    assert rows_of(json_lines(tmp_path, content, "translation.en")) == [("cat",)]  # the very key comes first


def test_what_is_no_fault(tmp_path: Path) -> None:
    rows = [
        '{"text": "first", "text": "last"}',
        "",
        " \t",
        '{"text": "big", "n": ' + "9" * 5000 + "}",
        '{"text": "odd", "n": [NaN, -Infinity, {"k": "\\ud800\\u0000"}]}',
    ]
    content = BOM + "".join(f"{row}\r\n" for row in rows).encode()
    assert rows_of(json_lines(tmp_path, content, "text")) == [("last",), ("big",), ("odd",)]


@pytest.mark.parametrize(
    ("ending", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_compressed_files_are_found_by_either_name(tmp_path: Path, ending: str, compress: Any) -> None:
    path = tmp_path / f"t.jsonl{ending}"
    path.write_bytes(compress(b'{"text": "a"}\n' * 1000))
    for name in ("t.jsonl", path.name):
        source = JsonLines(path=tmp_path / name, columns=("text",))
        assert source.files() == [path]
        assert rows_of(source) == [("a",)] * 1000
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="damaged or incomplete"):
        rows_of(source, BadLines(skip=True))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    source = JsonLines(path=tmp_path / "t.jsonl", columns=("text",))
    assert source.name == str(tmp_path / "t.jsonl")
    with pytest.raises(InputError, match=r"there is no .*t\.jsonl"):
        source.files()
    with pytest.raises(InputError, match=r"there is no .*t\.jsonl"):
        rows_of(source)


@pytest.mark.parametrize("content", ["", BOM, "\n \r\n"])
def test_an_empty_file(tmp_path: Path, content: bytes | str) -> None:
    with pytest.raises(InputError, match=r"t\.jsonl is empty; it must have one JSON object a line"):
        rows_of(json_lines(tmp_path, content))


@pytest.mark.parametrize(
    "content", ['[{"en": "a", "de": "b"}]', BOM + b'\r\n [\n{"en": "a",\n', "[" + "1," * LONGEST_LINE]
)
def test_one_big_list_is_refused(tmp_path: Path, content: bytes | str) -> None:
    with pytest.raises(InputError, match=r"t\.jsonl is a JSON list; it must be JSON Lines, with one object a line"):
        rows_of(json_lines(tmp_path, content), BadLines(skip=True))


BAD_LINES = [
    (
        "{'text': 'a'}",
        "not JSON",
        r"column 2 is not JSON \(Expecting property name.*\); a line must be one JSON object",
    ),
    ('{"text": "a"', "not JSON", "column 13 is not JSON"),
    ('{"text": "a"} {"text": "b"}', "not JSON", r"column 15 is not JSON \(Extra data\)"),
    ('{"text": "a\tb"}', "not JSON", r"column 12 is not JSON \(Invalid control character at\)"),
    ('{"text": "\\ud8"}', "not JSON", "column 12 is not JSON"),
    ("null", "not an object", "it is null; a line must be one JSON object"),
    ('"text"', "not an object", "it is a string; a line"),
    ("9" * 5000, "not an object", "it is a number; a line"),
    ('["text", "a"]', "not an object", "it is a list; a line"),
    ("[" * 100_000, "nested too deeply", "nested too deeply"),
    ('{"text": "a", "b": ' + '{"b": ' * 100_000, "nested too deeply", "nested too deeply"),
    ('{"txt": "a", "id": 1}', "key missing", "there is no 'text': 'text' is not among the keys 'txt', 'id'$"),
    ("{}", "key missing", r"there is no 'text': 'text' is not among the keys \(none\)$"),
    (json.dumps(dict.fromkeys(map(str, range(999)))), "key missing", r"not among the keys '0', '1', .{,300} \.\.\.$"),
    ('{"text": null}', "not a string", "'text' is null; it must be a string"),
    ('{"text": true}', "not a string", "'text' is a truth value; it"),
    ('{"text": -1}', "not a string", "'text' is a number; it"),
    ('{"text": 1e999}', "not a string", "'text' is a number; it"),
    ('{"text": ' + "9" * 5000 + "}", "not a string", "'text' is a number; it"),
    ('{"text": ["a"]}', "not a string", "'text' is a list; it"),
    ('{"text": {"a": "b"}}', "not a string", "'text' is an object; it"),
    ('{"text": "a\\u0000b"}', "NUL byte", r"\\u0000 is NUL; a text has none"),
    ('{"text": "a\\ud83d"}', "lone surrogate", r"\\ud83d is half of a surrogate pair; the other half is missing"),
    ('{"text": "\\uDE00\\uD83D"}', "lone surrogate", r"\\ude00 is half"),
    (b'{"text": "a\xff"}', "not UTF-8", "byte 0xff at byte 12 of the line is not UTF-8"),
    (b'{"text": "a\0"}', "NUL byte", "byte 12 of the line is NUL"),
    ('{"text": "' + "a" * LONGEST_LINE + '"}', "line too long", "the line has more than"),
]


@pytest.mark.parametrize(("line", "reason", "message"), BAD_LINES)
def test_bad_lines(tmp_path: Path, line: bytes | str, reason: str, message: str) -> None:
    line = line if isinstance(line, bytes) else line.encode()
    source = json_lines(tmp_path, b'{"text": "first"}\n\n' + line + b'\n{"text": "last"}\n', "text")
    with pytest.raises(InputError, match=rf"t\.jsonl, line 3: .*{message}"):
        rows_of(source)
    bad = BadLines(skip=True)
    assert rows_of(source, bad) == [("first",), ("last",)]
    assert bad.counts == {reason: 1}
    assert bad.places == {reason: [f"{source.path}, line 3"]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"translation": {"de": "a"}}', "there is no 'translation.en': 'en' is not among the keys 'de'$"),
        ('{"translation": null}', "there is no 'translation.en': 'en' is looked for in null$"),
        ('{"translation": {"en": []}}', "'translation.en' is a list; it must be a string$"),
    ],
)
def test_bad_lines_with_nested_keys(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rows_of(json_lines(tmp_path, line, "translation.en"))


def test_many_rows_make_several_chunks(tmp_path: Path) -> None:
    rows = [(f"s{number}", f"t{number}") for number in range(15_000)]
    source = json_lines(tmp_path, "".join(json.dumps({"en": a, "de": b}) + "\n" for a, b in rows))
    assert rows_of(source) == rows
    assert rows_of(source) == rows
    assert len(list(source.chunks(BadLines()))) > 1


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)


@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1), is_ascii=st.booleans())
@settings(max_examples=examples(300))
def test_everything_that_can_be_written_is_read_back(folder: Path, rows: list[tuple[str, str]], is_ascii: bool) -> None:
    objects = [{"de": de, "other": {"en": en}} for en, de in rows]
    content = "\r\n".join(json.dumps(row, ensure_ascii=is_ascii) for row in objects)
    assert rows_of(json_lines(folder, BOM + content.encode(), "other.en", "de")) == rows


VALUE = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "a.b"]), inner, max_size=3),
    max_leaves=6,
)
# Any JSON at all, pieces of it cut, repeated and in any order, and foreign bytes between them.
PIECES = [
    b'{"a":"x","b":"y"}',
    b'{"a":{"b":"x"}}',
    b"\n",
    b"\r\n",
    b"{",
    b"}",
    b'"',
    b":",
    b",",
    b'"a"',
    b"1e9",
    b"null",
]
PIECES += [b"\\", b"u", b"\\ud800", b"\\udc00", b"\\u0000", b"d800", BOM, b"\0", b"\xff", "ä".encode(), b"[", b" "]
JUNK = st.lists(VALUE.map(json.dumps).map(str.encode) | st.sampled_from(PIECES) | st.binary(max_size=5), max_size=12)


@given(content=JUNK.map(b"".join) | JUNK.map(b"\n".join), columns=st.sampled_from([("a",), ("a.b",), ("a", "b")]))
@settings(max_examples=examples(600))
def test_junk_ends_in_rows_or_an_input_error(folder: Path, content: bytes, columns: Any) -> None:
    source = json_lines(folder, content, *columns)
    bad = BadLines(skip=True)
    lines = [line for line in content.removeprefix(BOM).split(b"\n") if line.decode("utf-8", "replace").strip()]
    try:
        kept = rows_of(source, bad)
    except InputError:
        assert not lines or lines[0].lstrip().startswith(b"[")
        kept = None
    else:
        assert len(kept) + bad.counts.total() == len(lines)
    if kept is None or bad.counts:
        with pytest.raises(InputError):
            rows_of(source)
    else:
        assert rows_of(source) == kept
