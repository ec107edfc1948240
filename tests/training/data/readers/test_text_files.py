import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.readers import text_files
from paperformer.training.data.readers.text_files import TextFile
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.chunks import TEXT_SCHEMA

from ....examples import examples


def rows_of(reader: TextFile, bad: BadLines | None = None) -> list[tuple[str, bool]]:
    chunks = list(reader.chunks(bad or BadLines()))
    assert all(chunk.schema.equals(TEXT_SCHEMA) for chunk in chunks)
    return [row for chunk in chunks for row in zip(*chunk.to_pydict().values(), strict=True)]


def documents_of(rows: list[tuple[str, bool]]) -> list[str]:
    documents: list[str] = []
    for text, begins in rows:
        if begins:
            documents.append("")
        documents[-1] += text
    return documents


TEXT = b"\xef\xbb\xbf\r\nA first line\r\nand a second.\r\n \t\r\n\r\nNew \xc3\xbc.\n\n\nThe end"


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("joined", [("\nA first line\nand a second.\n \t\n\nNew ü.\n\n\nThe end", True)]),
        ("each", [("A first line", True), ("and a second.", True), ("New ü.", True), ("The end", True)]),
        ("blank_line", [("A first line\nand a second.\n", True), ("New ü.\n", True), ("The end", True)]),
    ],
)
def test_documents(tmp_path: Path, documents: str, expected: list[tuple[str, bool]]) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT))
    reader = TextFile(path=tmp_path / "a.txt", documents=documents)
    assert rows_of(reader) == rows_of(reader) == expected
    assert reader.name == f"{tmp_path}/a.txt"
    assert reader.files() == [tmp_path / "a.txt.gz"]


def test_joined_is_the_default(tmp_path: Path) -> None:
    assert TextFile(path=tmp_path).documents == "joined"


def test_a_row_has_two_hundred_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x\n" * 400 + "\n" + "y\n" * 201)
    assert rows_of(TextFile(path=path)) == [
        ("x\n" * 200, True), ("x\n" * 200, False), ("\n" + "y\n" * 199, False), ("y\n" * 2, False)
    ]  # fmt: skip
    assert rows_of(TextFile(path=path, documents="blank_line")) == [
        ("x\n" * 200, True), ("x\n" * 200, False), ("y\n" * 200, True), ("y\n", False)
    ]  # fmt: skip


def test_a_row_ends_at_a_hundred_thousand_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * 99_998 + "\n" + "\n" + "y\n")
    assert [(len(text), begins) for text, begins in rows_of(TextFile(path=path))] == [(100_000, True), (2, False)]
    path.write_text("x" * 99_998 + "\n" + "y\n")
    assert [(len(text), begins) for text, begins in rows_of(TextFile(path=path))] == [(100_001, True)]


@pytest.mark.parametrize("documents", ["joined", "each", "blank_line"])
def test_bad_lines(tmp_path: Path, documents: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\none\n\ntw\0o\n")
    reader = TextFile(path=path, documents=documents)
    with pytest.raises(InputError, match=r"a\.txt, line 1: byte 0xff at byte 1 of the line is not UTF-8"):
        rows_of(reader)
    bad = BadLines(skip=True)
    assert [(text.strip(), begins) for text, begins in rows_of(reader, bad)] == [("one", True)]
    assert bad.counts == {"not UTF-8": 1, "NUL byte": 1}


@pytest.mark.parametrize("documents", ["joined", "each", "blank_line"])
def test_an_empty_file(tmp_path: Path, documents: str) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match=r"a\.txt is empty; it must have text, a line at least"):
        rows_of(TextFile(path=tmp_path / "a.txt", documents=documents))
    with pytest.raises(InputError, match=r"there is no .*b\.txt"):
        rows_of(TextFile(path=tmp_path / "b.txt", documents=documents))


texts = st.lists(
    st.sampled_from(["a", "\n", "\n\n", "\r\n", "\r", " ", "\u2028", "\x0c", "long line", "語😀"])
    | st.characters(codec="utf-8"),
    max_size=30,
).map("".join)


@settings(max_examples=examples(300))
@given(texts, st.booleans(), st.integers(1, 4), st.integers(1, 12))
def test_rows_give_the_text_back(
    tmp_path_factory: pytest.TempPathFactory, text: str, has_mark: bool, most_lines: int, most_characters: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.txt"
    path.write_bytes(b"\xef\xbb\xbf" * has_mark + text.encode())
    bad = BadLines(skip=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "LINES_A_PIECE", most_lines)
        patch.setattr(text_files, "CHARACTERS_A_PIECE", most_characters)
        try:
            joined, each, by_blanks = (
                rows_of(TextFile(path=path, documents=documents), bad) for documents in ("joined", "each", "blank_line")
            )
        except InputError:
            assert not text
            return
    # Left to Python: the lines that have a NUL are left out, with their ends.
    plain = re.sub("\r(\n|$)", r"\1", text.removeprefix("" if has_mark else "\ufeff"))
    kept = "".join(line for line in re.findall(r"[^\n]*\n|[^\n]+$", plain) if "\0" not in line)
    assert "".join(row for row, _ in joined) == kept
    assert [begins for _, begins in joined] == [index == 0 for index in range(len(joined))]
    for rows in (joined, by_blanks):
        for row, _ in rows:
            lines = re.findall(r"[^\n]*\n|[^\n]+$", row)
            assert 1 <= len(lines) <= most_lines
            assert len("".join(lines[:-1])) < most_characters
    lines = kept.split("\n")
    assert each == [(line, True) for line in lines if line.strip()]
    paragraphs = re.split(r"(?:(?<=\n)|^)(?:[^\S\n]*(?:\n|$))+", kept)
    assert documents_of(by_blanks) == [paragraph for paragraph in paragraphs if paragraph]


@settings(max_examples=examples(300))
@given(st.binary(max_size=60), st.sampled_from(["joined", "each", "blank_line"]), st.booleans())
def test_any_bytes_give_rows_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, documents: str, skip: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.txt"
    path.write_bytes(content)
    bad = BadLines(skip=skip)
    try:
        rows = rows_of(TextFile(path=path, documents=documents), bad)
    except InputError:
        assert not skip or content in (b"", b"\xef\xbb\xbf")
        return
    assert all(text for text, _ in rows)
    assert sum(text.count("\n") for text, _ in rows) <= content.count(b"\n") - bad.counts.total() + 1
