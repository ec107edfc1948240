import gzip
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.readers import parallel_files
from paperformer.training.data.readers.parallel_files import ParallelFiles
from paperformer.training.data.text import chunks as chunks_module
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.chunks import PAIR_SCHEMA
from paperformer.training.data.text.lines import read_lines

from ....examples import examples


def files(folder: Path, source: bytes, target: bytes) -> ParallelFiles:
    (folder / "a.en").write_bytes(source)
    (folder / "a.de").write_bytes(target)
    return ParallelFiles.with_prefix(folder / "a", "en", "de")


def pairs_of(reader: ParallelFiles, *, skip: bool = False, bad: BadLines | None = None) -> list[tuple[str, str]]:
    chunks = list(reader.chunks(bad or BadLines(skip=skip)))
    assert all(chunk.schema.equals(PAIR_SCHEMA) for chunk in chunks)
    return [pair for chunk in chunks for pair in zip(*chunk.to_pydict().values(), strict=True)]


def test_pairs_twice_the_same(tmp_path: Path) -> None:
    reader = files(tmp_path, b"\xef\xbb\xbfone\r\n\r\nthree", "eins\nzwei\ndrei ü\n".encode())
    assert pairs_of(reader) == pairs_of(reader) == [("one", "eins"), ("", "zwei"), ("three", "drei ü")]
    assert reader.name == f"{tmp_path}/a.en, {tmp_path}/a.de"
    assert reader.files() == [tmp_path / "a.en", tmp_path / "a.de"]


def test_compressed_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "v1.2.en.gz").write_bytes(gzip.compress(b"one\n"))
    (tmp_path / "v1.2.de.xz").write_bytes(lzma.compress(b"eins\n"))
    reader = ParallelFiles.with_prefix(tmp_path / "v1.2", "en", "de")
    assert reader == ParallelFiles(source=tmp_path / "v1.2.en", target=tmp_path / "v1.2.de")
    assert reader.files() == [tmp_path / "v1.2.en.gz", tmp_path / "v1.2.de.xz"]
    assert pairs_of(reader) == [("one", "eins")]


def test_making_a_reader_touches_no_file(tmp_path: Path) -> None:
    reader = ParallelFiles.with_prefix(tmp_path / "a", "en", "de")
    for use in (reader.files, lambda: pairs_of(reader)):
        with pytest.raises(InputError, match=r"there is no .*a\.en \(nor"):
            use()


def test_both_lines_of_a_pair_are_left_out(tmp_path: Path) -> None:
    reader = files(tmp_path, b"one\n\xff\nthree\nfo\0ur\nfive\n", b"eins\nzwei\ndr\0ei\n\xff\nf\xc3\xbcnf\n")
    bad = BadLines(skip=True)
    assert pairs_of(reader, bad=bad) == [("one", "eins"), ("five", "fünf")]
    assert bad.counts == {"not UTF-8": 2, "NUL byte": 2}
    with pytest.raises(InputError, match=r"a\.en, line 2: byte 0xff at byte 1 of the line is not UTF-8"):
        pairs_of(reader)


@pytest.mark.parametrize("skip", [False, True])
def test_different_numbers_of_lines(tmp_path: Path, skip: bool) -> None:
    """Both counts, and where it begins, before anything is read."""
    words = [
        "a",
        "a longer line",
        "a",
        "a much longer line than the others",
        "ab",
        "a line",
        "abc",
        "the last line of all",
    ]
    lines = [f"{word} {'and so on ' * (number * 7 % 11)}" for number, word in enumerate(words * 170)]
    source, target = "\n".join(lines).encode(), "\n".join(lines[:1233] + lines[1234:]).encode()
    message = (
        r"a\.en has 1,360 lines and .*a\.de has 1,359; line n of one must be the translation of line n of the other, "
        r"which it is no more probably from line 1,234 on \(an estimate"
    )
    with pytest.raises(InputError, match=message):
        next(files(tmp_path, source, target).chunks(BadLines(skip=skip)))


def test_a_bad_line_does_not_hide_where_track_is_lost(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.en has 2 lines and .*a\.de has 3; .* from line [123] on"):
        pairs_of(files(tmp_path, b"\xff\nb\n", b"a\nb\n\0c"), skip=False)


@pytest.mark.parametrize(
    ("source", "target", "name"), [(b"", b"", "en"), (b"a", b"", "de"), (b"\xef\xbb\xbf", b"a", "en")]
)
def test_empty_files(tmp_path: Path, source: bytes, target: bytes, name: str) -> None:
    with pytest.raises(InputError, match=rf"a\.{name} is empty; it must have text, a line at least"):
        pairs_of(files(tmp_path, source, target), skip=True)


@pytest.mark.parametrize("side", ["en", "de"])
@pytest.mark.parametrize("lines", [b"", b"one more\n", b"two\nmore\n"])
def test_a_file_that_changes_after_the_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str, lines: bytes
) -> None:
    """It may have become longer or shorter; what has been read is not complete either way."""
    reader = files(tmp_path, b"one\n" * 3, b"eins\n" * 3)

    def change_and_read(path: Path, bad: BadLines, **options: Any) -> Iterator[str | None]:
        (tmp_path / f"a.{side}").write_bytes(lines and b"one\n" * 3 + lines)
        return read_lines(path, bad, **options)

    monkeypatch.setattr(parallel_files, "read_lines", change_and_read)
    with pytest.raises(InputError, match=rf"a\.{side} changed while it was read"):
        pairs_of(reader)


@pytest.mark.parametrize("side", ["en", "de"])
def test_a_file_that_changes_between_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    monkeypatch.setattr(chunks_module, "ROWS_A_CHUNK", 2)
    chunks = files(tmp_path, b"one\n" * 9, b"eins\n" * 9).chunks(BadLines())
    next(chunks)
    (tmp_path / f"a.{side}").write_bytes(b"other")
    with pytest.raises(InputError, match=rf"a\.{side} changed while it was read"):
        list(chunks)


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    reader = files(tmp_path, b"one\n" * 100, b"")
    (tmp_path / "a.de").unlink()
    with pytest.raises(InputError, match=r"there is no .*a\.de"):
        pairs_of(reader)
    (tmp_path / "a.de.gz").write_bytes(gzip.compress(b"eins\n" * 100)[:-1])
    with pytest.raises(InputError, match=r"a\.de\.gz cannot be read: .* damaged or incomplete"):
        next(reader.chunks(BadLines(skip=True)))


faulty_lines = st.lists(
    st.sampled_from([b"a", b"", b"\r", b"\xff", b"\0", "ü".encode(), b"\xef\xbb\xbf"]) | st.binary(max_size=6),
    max_size=8,
).map(b"\n".join)


@settings(max_examples=examples(300))
@given(faulty_lines, faulty_lines, st.booleans())
def test_any_content_gives_pairs_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, source: bytes, target: bytes, skip: bool
) -> None:
    reader = files(tmp_path_factory.getbasetemp(), source, target)
    sides = [list(read_lines(path, BadLines(skip=True))) for path in reader.files()]
    bad = BadLines(skip=skip)
    try:
        pairs = pairs_of(reader, bad=bad)
    except InputError:
        assert len(sides[0]) != len(sides[1]) or not sides[0] or (not skip and None in sides[0] + sides[1])
        return
    assert pairs == [pair for pair in zip(*sides, strict=True) if None not in pair]
    assert bad.counts.total() == sides[0].count(None) + sides[1].count(None)
