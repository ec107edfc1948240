import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.readers.parquet import ParquetFile
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.chunks import PAIR_SCHEMA, TEXT_SCHEMA
from paperformer.training.data.text.lines import LONGEST_LINE

from ....examples import examples

PAIRS = {"en": ["dog", "", "cat"], "de": ["Hund", "leer", "Kätzchen"]}


def rows_of(source: ParquetFile, bad: BadLines | None = None) -> list[tuple[str, ...]]:
    rows = []
    for chunk in source.chunks(bad or BadLines()):
        chunk.validate(full=True)
        assert chunk.num_rows > 0
        assert chunk.schema == (PAIR_SCHEMA if len(source.columns) == 2 else TEXT_SCHEMA)
        assert all(column.null_count == 0 for column in chunk.columns)
        texts = [column.to_pylist() for column in chunk.columns if pa.types.is_string(column.type)]
        rows += zip(*texts, strict=True)
    return rows


def parquet(folder: Path, content: Any, *columns: str, name: str = "t.parquet", **options: Any) -> ParquetFile:
    path = folder / name
    pq.write_table(content if isinstance(content, pa.Table) else pa.table(content), path, **options)
    return ParquetFile(path=path, columns=columns or ("en", "de"))


def strings(values: list[bytes]) -> pa.StringArray:
    """Strings whose bytes need not be UTF-8."""
    array = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(array), *array.buffers()[1:])


def test_pairs(tmp_path: Path) -> None:
    source = parquet(tmp_path, PAIRS | {"id": [1, None, 3], "lists": [["a"], [], None]})
    assert source.name == str(tmp_path / "t.parquet")
    assert source.files() == [tmp_path / "t.parquet"]
    assert rows_of(source) == [("dog", "Hund"), ("", "leer"), ("cat", "Kätzchen")]
    swapped = ParquetFile(path=source.path, columns=("de", "en"))
    assert rows_of(swapped) == [("Hund", "dog"), ("leer", ""), ("Kätzchen", "cat")]


def test_one_column_is_running_text(tmp_path: Path) -> None:
    (chunk,) = parquet(tmp_path, PAIRS, "en").chunks(BadLines())
    assert chunk.to_pydict() == {"text": ["dog", "", "cat"], "begins": [True, True, True]}


def test_fields_of_structs(tmp_path: Path) -> None:
    rows = [{"en": en, "de": de, "deep": {"er": en + de}} for en, de in zip(*PAIRS.values(), strict=True)]
    content = {"id": [1, 2, 3], "translation": rows, "translation.de": ["x", "y", "z"]}
    assert rows_of(parquet(tmp_path, content, "translation.en", "translation.deep.er"))[0] == ("dog", "dogHund")
    assert rows_of(parquet(tmp_path, content, "translation.de")) == [
        ("x",),
        ("y",),
        ("z",),
    ]  # that very name comes first


@pytest.mark.parametrize(
    "convert",
    [
        lambda values: values.cast(pa.large_string()),
        lambda values: values.cast(pa.string_view()),
        lambda values: values.dictionary_encode(),
    ],
)
def test_every_type_of_string(tmp_path: Path, convert: Any) -> None:
    text = convert(pa.array(["a", "b", None, "a"]))
    content = pa.table({"text": text, "other": pa.StructArray.from_arrays([text], ["text"])})
    source = parquet(tmp_path, content, "text", "other.text")
    assert pq.read_schema(source.path).field("text").type == text.type
    bad = BadLines(skip=True)
    assert rows_of(source, bad) == [("a", "a"), ("b", "b"), ("a", "a")]
    assert bad.counts == {"null": 1}


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("part-10.parquet", "part-02.parquet", "part-01.parquet"):
        parquet(tmp_path, {"text": [name]}, name=name)
    parquet(tmp_path, {"text": pa.array([], pa.string())}, name="part-03.parquet")
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "folder.parquet").mkdir()
    source = ParquetFile(path=tmp_path, columns=("text",))
    names = ["part-01.parquet", "part-02.parquet", "part-03.parquet", "part-10.parquet"]
    assert source.files() == [tmp_path / name for name in names]
    assert rows_of(source) == [(names[0],), (names[1],), (names[3],)]


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.parquet is not there, or is no file$"):
        ParquetFile(path=tmp_path / "t.parquet", columns=("text",)).files()
    with pytest.raises(InputError, match=r"is a folder without files \*\.parquet"):
        rows_of(ParquetFile(path=tmp_path, columns=("text",)))


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ({"text": pa.array([], pa.string())}, ["text"], r"t\.parquet is empty; it must have rows"),
        (PAIRS, ["en", "fr"], r"t\.parquet has no column 'fr'; its columns are 'en', 'de'$"),
        (PAIRS, ["en.de"], r"t\.parquet has no column 'en\.de'; its columns are 'en', 'de'$"),
        ({"t": [{"de": "b", "en": "a"}], "l": [["a"]]}, ["t.fr"], r"'t\.fr'; its columns are 't\.de', 't\.en'$"),
        ({"l": [["a"]]}, ["l.list.element"], r"has no column 'l\.list\.element'; its columns are \(none\)$"),
        ({str(n): ["a"] for n in range(999)}, ["text"], r"its columns are '0', '1', .{,300} \.\.\.$"),
        (pa.table([["a"], ["b"]], ["text", "text"]), ["text"], r"several columns 'text'; its columns are"),
        ({"text": [1]}, ["text"], r"t\.parquet: column 'text' has the type int64; it must be string"),
        ({"text": [None]}, ["text"], r"column 'text' has the type null; it must be string"),
        ({"text": [b"a"]}, ["text"], r"column 'text' has the type binary; it must be string"),
        ({"text": [["a"]]}, ["text"], r"column 'text' has the type list<element: string>; it must be string"),
        ({"t": [{"en": "a"}]}, ["t"], r"column 't' has the type struct<en: string>; it must be string"),
        ({"t": [{"en": 1}]}, ["t.en"], r"column 't\.en' has the type int64; it must be string"),
    ],
)  # fmt: skip
def test_unusable_files(tmp_path: Path, content: Any, columns: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rows_of(parquet(tmp_path, content, *columns), BadLines(skip=True))


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        (None, "null", "column 'text' is null; it must be a string"),
        (b"ab\xff", "not UTF-8", "column 'text' has byte 0xff at byte 3, which is not UTF-8"),
        (b"\xed\xa0\x80", "not UTF-8", "column 'text' has byte 0xed at byte 1, which is not UTF-8"),  # a surrogate
        (b"a\0", "NUL byte", "column 'text' has NUL at byte 2; a text has none"),
        (b"a" * (LONGEST_LINE + 1), "line too long", "column 'text' has more than 1,048,576 bytes"),
    ],
)
@pytest.mark.parametrize("is_dictionary", [False, True])
def test_bad_rows(tmp_path: Path, value: bytes | None, reason: str, message: str, is_dictionary: bool) -> None:
    """In the fifth row, which is the second of the second row group."""
    text = strings([b"a", b"b", b"a", b"d", value or b"", b"f" * LONGEST_LINE])
    if value is None:
        text = pa.array([*text.to_pylist()[:4], None, *text.to_pylist()[5:]])
    if is_dictionary:
        text = text.dictionary_encode()
    content = pa.table({"id": list("123456"), "text": text})
    source = parquet(tmp_path, content, "id", "text", row_group_size=3)
    with pytest.raises(InputError, match=rf"t\.parquet, row 5: {message}"):
        rows_of(source)
    bad = BadLines(skip=True)
    assert "".join(number for number, _ in rows_of(source, bad)) == "12346"
    assert bad.counts == {reason: 1}
    assert bad.places == {reason: [f"{source.path}, row 5"]}


def test_null_structs_are_null_values_and_a_row_counts_once(tmp_path: Path) -> None:
    source = parquet(tmp_path, {"t": [None, {"en": None, "de": None}, {"en": "a", "de": "b"}]}, "t.en", "t.de")
    bad = BadLines(skip=True)
    assert rows_of(source, bad) == [("a", "b")]
    assert bad.counts == {"null": 2}


def test_rows_are_numbered_through_a_file_and_anew_in_the_next(tmp_path: Path) -> None:
    texts = ["a"] * 24_999 + [None]
    parquet(tmp_path, {"text": texts}, name="1.parquet")
    parquet(tmp_path, {"text": texts}, name="2.parquet")
    bad = BadLines(skip=True)
    assert len(rows_of(ParquetFile(path=tmp_path, columns=("text",)), bad)) == 2 * 24_999
    assert bad.places == {"null": [f"{tmp_path / name}, row 25000" for name in ("1.parquet", "2.parquet")]}


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-9], lambda content: content[:9], lambda content: b"", lambda content: b"text"]
)
def test_damaged_files(tmp_path: Path, damage: Any) -> None:
    source = parquet(tmp_path, PAIRS)
    source.path.write_bytes(damage(source.path.read_bytes()))
    with pytest.raises(InputError, match=r"t\.parquet cannot be read as Parquet; it may be damaged or incomplete: .+"):
        rows_of(source, BadLines(skip=True))


def test_checksums_are_compared_where_there_are_some(tmp_path: Path) -> None:
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False, "write_statistics": False}
    source = parquet(tmp_path, PAIRS, **options)
    content = source.path.read_bytes()
    assert content.count(b"Hund") == 1
    source.path.write_bytes(content.replace(b"Hund", b"Hand"))
    with pytest.raises(InputError, match=r"t\.parquet cannot be read as Parquet.*CRC"):
        rows_of(source)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    source = parquet(tmp_path, PAIRS)
    chunks = source.chunks(BadLines())
    next(chunks)
    source.path.write_bytes(b"something else")
    with pytest.raises(InputError, match=r"t\.parquet changed while it was read"):
        list(chunks)


@pytest.mark.parametrize("use_dictionary", [False, True])
def test_memory_stays_small_in_one_huge_row_group(tmp_path: Path, use_dictionary: bool) -> None:
    text = [f"{number:05}" * 500 for number in range(20_000)]  # 50 MB
    source = parquet(tmp_path, {"text": text, "other": text}, "text", compression="none", use_dictionary=use_dictionary)
    assert pq.read_metadata(source.path).num_row_groups == 1
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    tracemalloc.start()  # what is read from the file is Python's at first
    try:
        rows = sum(chunk.num_rows for chunk in source.chunks(BadLines()))
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)
    assert rows == 20_000
    assert pool.max_memory() + python_peak < 25e6


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
TYPES = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet")


@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1), kind=st.sampled_from(TYPES), group=st.integers(1, 5))
@settings(max_examples=examples(200))
def test_everything_that_can_be_written_is_read_back(folder: Path, rows: list[Any], kind: Any, group: int) -> None:
    source, target = ([row[side] for row in rows] for side in (0, 1))
    content = pa.table({"en": pa.array(source, kind), "other": [{"de": text} for text in target]})
    assert rows_of(parquet(folder, content, "en", "other.de", row_group_size=group)) == rows


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """A valid file of which a few bytes were changed, removed or doubled."""
    texts = draw(st.lists(st.none() | TEXT, min_size=1, max_size=20))
    content = pa.table({"en": pa.array(texts, draw(st.sampled_from(TYPES))), "de": pa.array(texts[::-1], pa.string())})
    sink = pa.BufferOutputStream()
    pq.write_table(content, sink, compression=draw(st.sampled_from(["none", "snappy"])), row_group_size=7)
    file = bytearray(sink.getvalue())
    for _ in range(draw(st.integers(1, 3))):
        start, length = draw(st.integers(0, len(file) - 1)), draw(st.integers(1, 8))
        other = draw(st.binary(min_size=length, max_size=length))
        file[start : start + length] = draw(st.sampled_from([other, b"", file[start : start + length] * 2]))
    return bytes(file)


@given(content=damaged_files() | st.binary(max_size=100))
# Always the same: where damage makes up a page of gigabytes, Arrow takes seconds to find that it is not there.
@settings(max_examples=examples(400), derandomize=True)
def test_damage_ends_in_rows_or_an_input_error(folder: Path, content: bytes) -> None:
    path = folder / "damaged.parquet"
    path.write_bytes(content)
    source = ParquetFile(path=path, columns=("en", "de"))
    bad = BadLines(skip=True)
    try:
        kept = rows_of(source, bad)
    except InputError:
        kept = None
    if kept is None or bad.counts:
        with pytest.raises(InputError):
            rows_of(source)
    else:
        assert rows_of(source) == kept
