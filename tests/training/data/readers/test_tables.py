import bz2
import csv
import gzip
import io
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.readers.tables import Table
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.chunks import PAIR_SCHEMA, TEXT_SCHEMA
from paperformer.training.data.text.lines import LONGEST_LINE

from ....examples import examples

BOM = b"\xef\xbb\xbf"


def rows_of(table: Table, bad: BadLines | None = None) -> list[tuple[str, ...]]:
    rows = []
    for chunk in table.chunks(bad or BadLines()):
        chunk.validate(full=True)
        assert chunk.num_rows > 0
        assert chunk.schema == (PAIR_SCHEMA if len(table.columns) == 2 else TEXT_SCHEMA)
        texts = [column.to_pylist() for column in chunk.columns if pa.types.is_string(column.type)]
        rows += zip(*texts, strict=True)
    return rows


def table(folder: Path, content: bytes | str, *columns: str | int, ending: str = "tsv", **options: Any) -> Table:
    path = folder / f"t.{ending}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Table(path=path, columns=columns or (1, 2), delimiter="," if ending == "csv" else "\t", **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def test_tsv_is_plain(tmp_path: Path) -> None:
    content = 'a\tb\textra\textra\r\n"\t"x\n\t\n \xa0\u2028c\t\x0b'
    assert rows_of(table(tmp_path, content)) == [("a", "b"), ('"', '"x'), ("", ""), (" \xa0\u2028c", "\x0b")]


def test_csv_follows_rfc_4180(tmp_path: Path) -> None:
    content = 'a,b,extra\r\n"a ""quoted"", b","two\r\nlines\n\n"\r\n,""\r\n5" disk,"\r"'
    expected = [("a", "b"), ('a "quoted", b', "two\nlines\n\n"), ("", ""), ('5" disk', "\r")]
    assert rows_of(table(tmp_path, content, ending="csv")) == expected


def test_columns_by_number_and_by_name(tmp_path: Path) -> None:
    content = "id\tde\ten\n1\tHund\tdog\n2\tKatze\tcat\n"
    by_name = [("dog", "Hund"), ("cat", "Katze")]
    assert rows_of(table(tmp_path, content, "en", "de")) == by_name
    assert rows_of(table(tmp_path, content, 3, "de")) == by_name
    assert rows_of(table(tmp_path, content, 3, 2, header=True)) == by_name
    assert rows_of(table(tmp_path, content, 3, 2)) == [("en", "de"), *by_name]
    assert rows_of(table(tmp_path, content, 3, 2, header=False)) == [("en", "de"), *by_name]


@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_one_column_is_running_text(tmp_path: Path, ending: str) -> None:
    source = table(tmp_path, "one\n\nthree", 1, ending=ending)
    (chunk,) = source.chunks(BadLines())
    assert chunk.to_pydict() == {"text": ["one", "", "three"], "begins": [True, True, True]}


@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_windows_line_ends_and_byte_order_mark(tmp_path: Path, ending: str) -> None:
    separator = "," if ending == "csv" else "\t"
    rows = ["source", "target"], ["ä", "b"], ["c", "d"]
    content = "".join(separator.join(row) + "\r\n" for row in rows)
    assert rows_of(table(tmp_path, BOM + content.encode(), "source", "target", ending=ending)) == [
        ("ä", "b"),
        ("c", "d"),
    ]


def test_csv_with_quoted_header_behind_a_byte_order_mark(tmp_path: Path) -> None:
    assert rows_of(table(tmp_path, BOM + b'"a\r\nb","c"\r\nx,y', "c", "a\nb", ending="csv")) == [("y", "x")]


@pytest.mark.parametrize(
    ("ending", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_compressed_tables_are_found_by_either_name(tmp_path: Path, ending: str, compress: Any) -> None:
    path = tmp_path / f"t.tsv{ending}"
    path.write_bytes(compress(b"a\tb\n" * 1000))
    for name in ("t.tsv", path.name):
        source = Table(path=tmp_path / name, columns=(2, 1), delimiter="\t")
        assert source.files() == [path]
        assert rows_of(source) == [("b", "a")] * 1000
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="damaged or incomplete"):
        rows_of(source, BadLines(skip=True))


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    source = Table(path=tmp_path / "t.tsv", columns=(1,), delimiter="\t")
    assert source.name == str(tmp_path / "t.tsv")
    with pytest.raises(InputError, match=r"there is no .*t\.tsv"):
        source.files()
    with pytest.raises(InputError, match=r"there is no .*t\.tsv"):
        rows_of(source)


def test_many_rows_make_several_chunks(tmp_path: Path) -> None:
    rows = [(f"s{number}", f"t{number}") for number in range(25_000)]
    source = table(tmp_path, "".join(f"{a}\t{b}\n" for a, b in rows))
    assert rows_of(source) == rows
    assert rows_of(source) == rows
    assert len(list(source.chunks(BadLines()))) > 1


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("", (1, 2), r"t\.tsv is empty; it must have rows"),
        (BOM, (1, 2), r"t\.tsv is empty; it must have rows"),
        ("", ("a",), r"t\.tsv is empty; it must have a header"),
        ("a\tb\n", ("a",), r"t\.tsv is empty; it must have rows \(below its header"),
        ("a\tb\n1\t2\n", ("c",), r"t\.tsv has no column 'c'; its columns are 'a', 'b'$"),
        ("a\tb\n1\t2\n", ("a", 3), r"t\.tsv has no column 3; its columns are 'a', 'b'$"),
        (
            "a\tb\ta\n1\t2\t3\n",
            ("b", "a"),
            r"t\.tsv has several columns 'a'; give a number; its columns are 'a', 'b', 'a'",
        ),
        ("\t".join(map(str, range(1000))) + "\n1\t2\n", ("c",), r"its columns are '0', '1', .{,300} \.\.\.$"),
        (b"\xff\n1\t2\n", ("c",), r"t\.tsv, line 1: byte 0xff at byte 1 of the line is not UTF-8"),
    ],
)
def test_unusable_tables(tmp_path: Path, content: bytes | str, columns: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rows_of(table(tmp_path, content, *columns))


@pytest.mark.parametrize("header", [b"\xff\tb", b"a\0\tb"])
def test_a_header_is_never_skipped(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(InputError, match=r"t\.tsv: its header cannot be read"):
        rows_of(table(tmp_path, header + b"\na\tb\n1\t2\n", "a", "b"), BadLines(skip=True))


def test_impossible_columns_are_refused_before_reading() -> None:
    with pytest.raises(InputError, match=r"t\.tsv has no column 0; columns are numbered from 1"):
        Table(path=Path("t.tsv"), columns=(1, 0), delimiter="\t")
    with pytest.raises(InputError, match=r"t\.tsv has no header to name a column 'a'"):
        Table(path=Path("t.tsv"), columns=("a",), delimiter="\t", header=False)


BAD_LINES = [
    # ending, content, place of the first bad line, what is counted, message about the first, what is kept
    ("tsv", b"a\tb\nc\n\nd\te\n", "line 2", {"too few columns": 2}, "columns: 1; .* 2, separated by tabs", "ad"),
    ("csv", b"a,b\nc\n\nd,e\n", "line 2", {"too few columns": 2}, "columns: 1; .* 2, separated by commas", "ad"),
    ("tsv", b"a\tb\nc\t\xff\nd\te\n", "line 2", {"not UTF-8": 1}, "byte 0xff at byte 3 of the line is not UTF-8", "ad"),
    ("csv", b"a,b\nc,\xff\nd,e\n", "line 2", {"not UTF-8": 1}, "byte 0xff at byte 3 of the line is not UTF-8", "ad"),
    ("tsv", b"a\tb\nc\t\0\nd\te\n", "line 2", {"NUL byte": 1}, "byte 3 of the line is NUL", "ad"),
    ("csv", b"a,b\nc,\0\nd,e\n", "line 2", {"NUL byte": 1}, "byte 3 of the line is NUL", "ad"),
    ("csv", b'a,b\n"c" d,e\nf,g\n', "line 2", {"not CSV": 1}, "a closing quote must be followed by a comma", "af"),
    ("csv", b'a,b\nc\rd,e\nf,g\n', "line 2", {"not CSV": 1}, "a carriage return must be inside quotes", "af"),
    ("csv", b'a,b\n"c\nd" e,f\ng,h\n', "line 2", {"not CSV": 2}, "not CSV as in RFC 4180", "ag"),
    ("csv", b'a,b\nc,"d\ne,f', "line 2", {"quote not closed": 2}, "is not closed before the end of the file", "a"),
    ("csv", b'a,b\n"c\n\xff\nd,e', "line 3", {"quote not closed": 1, "not UTF-8": 1}, "byte 0xff at byte 1", "ad"),
]  # fmt: skip


@pytest.mark.parametrize(("ending", "content", "place", "counts", "message", "kept"), BAD_LINES)
def test_bad_lines(
    tmp_path: Path, ending: str, content: bytes, place: str, counts: dict[str, int], message: str, kept: str
) -> None:
    source = table(tmp_path, content, ending=ending)
    with pytest.raises(InputError, match=rf"t\.{ending}, {place}: .*{message}"):
        rows_of(source)
    bad = BadLines(skip=True)
    assert "".join(first for first, _ in rows_of(source, bad)) == kept
    assert bad.counts == counts
    assert f"{source.path}, {place}" in [place for places in bad.places.values() for place in places]


@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_a_line_of_megabytes(tmp_path: Path, ending: str) -> None:
    separator = "," if ending == "csv" else "\t"
    longest = "x" * (LONGEST_LINE - 2) + separator + "y"  # in CSV far above the library's own limit
    assert rows_of(table(tmp_path, f"{longest}\n", ending=ending)) == [("x" * (LONGEST_LINE - 2), "y")]
    source = table(tmp_path, f"a{separator}b\n{longest * 3}\nc{separator}d\n", ending=ending)
    with pytest.raises(InputError, match="line 2: the line has more than"):
        rows_of(source)
    bad = BadLines(skip=True)
    assert rows_of(source, bad) == [("a", "b"), ("c", "d")]
    assert bad.counts == {"line too long": 1}


def test_an_open_quote_does_not_swallow_the_file(tmp_path: Path) -> None:
    line = "nothing is quoted here,nor there\n"
    source = table(tmp_path, f'"open,b\n{line * (3 * LONGEST_LINE // len(line))}', ending="csv")
    with pytest.raises(
        InputError, match="line 1: the quote opened in the row that begins on line 1 is not closed within"
    ):
        rows_of(source)
    bad = BadLines(skip=True)
    kept = len(rows_of(source, bad))
    assert kept + bad.counts["quote not closed"] == 1 + 3 * LONGEST_LINE // len(line)
    assert bad.counts["quote not closed"] * len(line) < LONGEST_LINE + 2 * len(line)


def test_rows_of_several_lines_may_be_many(tmp_path: Path) -> None:
    cell = "one line\n" * 100
    count = 2 * LONGEST_LINE // len(cell)
    assert rows_of(table(tmp_path, f'"{cell}",b\n' * count, ending="csv")) == [(cell, "b")] * count


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1), is_windows=st.booleans())
@settings(max_examples=examples(300))
def test_every_tsv_that_can_be_written_is_read_back(
    folder: Path, rows: list[tuple[str, ...]], is_windows: bool
) -> None:
    plain = [tuple("".join(cell.split("\t")).replace("\n", "").rstrip("\r") for cell in row) for row in rows]
    content = ("\r\n" if is_windows else "\n").join("\t".join(row) for row in plain)
    assert rows_of(table(folder, BOM + content.encode(), 3, 1)) == [(row[2], row[0]) for row in plain]


@given(
    rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1),
    style=st.sampled_from([("\r\n", csv.QUOTE_MINIMAL), ("\n", csv.QUOTE_ALL)]),
)
@settings(max_examples=examples(300))
def test_every_csv_that_can_be_written_is_read_back(folder: Path, rows: list[tuple[str, ...]], style: Any) -> None:
    line_end, quoting = style
    content = io.StringIO()
    csv.writer(content, lineterminator=line_end, quoting=quoting).writerows(rows)
    expected = [(row[2].replace("\r\n", "\n"), row[0].replace("\r\n", "\n")) for row in rows]
    assert rows_of(table(folder, BOM + content.getvalue().encode(), 3, 1, ending="csv")) == expected


# Pieces of valid tables, cut, repeated and in any order, with foreign bytes between them.
PIECES = [
    b"a\tb",
    b"a,b",
    b'"a ""b""","c\nd"',
    "ä,ö".encode(),
    b"\t",
    b",",
    b'"',
    b'""',
    b"\n",
    b"\r",
    b"\r\n",
    BOM,
    b"\0",
    b"\xff",
]
JUNK = st.binary(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)


@given(
    content=JUNK,
    ending=st.sampled_from(["tsv", "csv"]),
    columns=st.sampled_from([(1,), (2,), (1, 2), ("a", "b"), ("a",)]),
)
@settings(max_examples=examples(600))
def test_junk_ends_in_rows_or_an_input_error(folder: Path, content: bytes, ending: str, columns: Any) -> None:
    source = table(folder, content, *columns, ending=ending)
    bad = BadLines(skip=True)
    try:
        kept = rows_of(source, bad)
    except InputError as error:
        if isinstance(columns[0], int) and "is empty" not in str(error):
            raise
        kept = None
    else:
        text = content.removeprefix(BOM)
        lines = text.count(b"\n") + (not text.endswith(b"\n")) - isinstance(columns[0], str)
        known = len(kept) + bad.counts.total()
        # Quotes make rows of several lines.
        assert known == lines or (ending == "csv" and b'"' in content and known < lines)
    if kept is None or bad.counts:
        with pytest.raises(InputError):
            rows_of(source)
    else:
        assert rows_of(source) == kept
