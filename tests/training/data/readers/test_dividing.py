"""Parts of files together give what the whole file does: rows, bad lines, and their places."""

import gzip
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.hold_out import HeldOut
from paperformer.training.data.readers.json_lines import JsonLines
from paperformer.training.data.readers.parallel_files import ParallelFiles
from paperformer.training.data.readers.parquet import ParquetFile
from paperformer.training.data.readers.reader import Reader, divide
from paperformer.training.data.readers.tables import Table
from paperformer.training.data.readers.text_files import TextFile
from paperformer.training.data.text.bad_lines import BadLines

from ....examples import examples

LINES = [
    b"a\tb",
    b"en\tde",
    b"",
    b" ",
    b"x",
    b"\xff\tb",
    b"a\t\x00",
    b"c\xc3\xa9\td\r",
    b"\r",
    b'{"text": "j"}',
    b"{",
    b"a\tb\tc",
]
contents = st.tuples(st.lists(st.sampled_from(LINES), min_size=1, max_size=16), st.booleans(), st.booleans())


@pytest.fixture(autouse=True, scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DIVIDED", str(tmp_path_factory.mktemp("divided")))
        yield


def write(name: str, content: tuple[list[bytes], bool, bool]) -> Path:
    lines, ends, has_mark = content
    path = Path(os.environ["PYTEST_DIVIDED"]) / name
    path.write_bytes(b"\xef\xbb\xbf" * has_mark + b"\n".join(lines) + b"\n" * ends)
    return path


def read(readers: Sequence[Reader]) -> tuple[list[dict[str, Any]], dict[str, int], dict[str, list[str]]]:
    rows, all_bad = [], BadLines(skip=True)
    for reader in readers:
        bad = BadLines(skip=True)
        rows += [row for chunk in reader.chunks(bad) for row in chunk.to_pylist()]
        all_bad.add(bad.counts, bad.places)
    return rows, dict(all_bad.counts), all_bad.places


def is_refused(reader: Reader) -> bool:
    try:
        read([reader])
    except InputError:
        return True
    return False


def check(reader: Reader, lines: int) -> None:
    if not is_refused(reader):  # a file without rows, or without its columns
        parts = divide(reader, lines)
        expected = read([reader])
        found = read(parts)
        assert found == expected
        assert list(found[1]) == list(expected[1])  # in the same order
        assert list(found[2]) == list(expected[2])


@settings(max_examples=examples(200))
@given(contents, st.integers(1, 5))
def test_files_of_lines(content: tuple[list[bytes], bool, bool], lines: int) -> None:
    path = write("a.txt", content)
    for documents in ("joined", "each", "blank_line"):
        check(TextFile(path=path, documents=documents), lines)  # type: ignore[arg-type]
    check(Table(path=path, columns=(1, 2), delimiter="\t", names=("en", "de")), lines)
    check(Table(path=path, columns=("de", 1), delimiter="\t"), lines)
    check(JsonLines(path=path, columns=("text",)), lines)
    check(HeldOut(reader=TextFile(path=path, documents="each"), part="train", share=0.25), lines)


@settings(max_examples=examples(100))
@given(contents, contents, st.integers(1, 5))
def test_two_files(source: tuple[list[bytes], bool, bool], target: tuple[list[bytes], bool, bool], lines: int) -> None:
    count = min(len(source[0]), len(target[0]))
    source, target = ((lines[:count], True, mark) for lines, _, mark in (source, target))
    reader = ParallelFiles(source=write("a.en", source), target=write("a.de", target))
    check(reader, lines)
    assert len(divide(reader, lines)) == -(-count // lines)


def test_parts_are_as_long_as_was_asked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n\nb\n\nc\nd\n\n\ne\n")
    parts = divide(TextFile(path=tmp_path / "a.txt", documents="blank_line"), 2)
    assert [[row["text"] for row in read([part])[0]] for part in parts] == [["a\n", "b\n"], ["c\nd\n"], ["e\n"]]
    assert len(divide(TextFile(path=tmp_path / "a.txt", documents="each"), 4)) == 3
    assert len(divide(TextFile(path=tmp_path / "a.txt"), 1)) == 1  # one document


def test_files_of_a_folder_some_of_which_are_empty(tmp_path: Path) -> None:
    for number, texts in enumerate((["a", None], [], ["b"])):
        pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), tmp_path / f"{number}.parquet")
    reader = ParquetFile(path=tmp_path, columns=("text",))
    assert len(divide(reader, 1)) == 3
    check(reader, 1)


def test_what_cannot_be_read_from_the_middle_is_one_part(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\n"a\nb"\nc\n')
    reader = Table(path=tmp_path / "a.csv", columns=("text",), delimiter=",")
    assert divide(reader, 1) == [reader]
    with gzip.open(tmp_path / "a.txt.gz", "wb") as file:
        file.write(b"a\nb\n")
    each = TextFile(path=tmp_path / "a.txt", documents="each")
    assert divide(each, 1) == [each]
    held_out = HeldOut(reader=each, part="test", share=0.2)
    assert divide(held_out, 1) == [held_out]


def test_files_of_different_lengths_are_refused_before_they_are_divided(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("a\nb\n")
    (tmp_path / "a.de").write_text("a\n")
    with pytest.raises(InputError, match=r"has 2 lines and .* has 1; line n of one must be"):
        divide(ParallelFiles.with_prefix(tmp_path / "a", "en", "de"), 1)
