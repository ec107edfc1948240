"""What can be asked for together, whatever the input is: lines, catalogues, files of records."""

import csv
from pathlib import Path
from typing import Any

import pytest

from paperformer.cli import main

SOURCES = ["A dog runs.", "Two men talk, 5 of them."]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "strings.csv"
    path.write_text(
        "".join(f"{line}\n" for line in ["id,source", *(f'{i},"{text}"' for i, text in enumerate(SOURCES))])
    )
    return path


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "strings.txt"
    path.write_text("".join(f"{text}\n" for text in SOURCES))
    return path


@pytest.mark.parametrize("options", [[], ["--mbr", "3", "--seed", "4"], ["--glossary", "terms.tsv"]])
def test_a_table_has_the_translations_that_its_texts_have_as_lines(
    seq2seq: Any,
    table: Path,
    lines: Path,
    options: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(table.parent)
    Path("terms.tsv").write_text("dog\tHund\n")
    common = [str(seq2seq.folder), "--num_beams", "2", *options]
    main(["translate", *common, "--input", str(lines)])
    expected = capsys.readouterr().out.splitlines()
    main(["translate", *common, "--input", str(table), "--column", "source"])
    found = [row["translation"] for row in csv.DictReader(capsys.readouterr().out.splitlines())]
    assert [text.split() for text in found] == [text.split() for text in expected]


@pytest.mark.parametrize("option", [["--n_best", "2"], ["--alignment", "true"], ["--target_prefix", "Nein"]])
def test_what_a_file_of_records_has_no_place_for_is_refused(
    seq2seq: Any, table: Path, option: list[str], refused: Any
) -> None:
    message = refused("translate", seq2seq.folder, "--input", table, "--column", "source", *option)
    assert message.startswith(f"{option[0]} is for lines of text, and {table} is csv")


@pytest.mark.parametrize("option", [["--n_best", "2"], ["--processes", "2"], ["--ensemble", "x"], ["--mbr", "4"]])
def test_other_engines_find_one_translation_in_one_process(
    seq2seq: Any, lines: Path, option: list[str], refused: Any
) -> None:
    message = refused("translate", seq2seq.folder, "--input", lines, "--engine", "onnx", *option)
    assert message.startswith("--engine onnx finds one best translation of each line, in one process")


def test_translations_are_checked_however_they_are_found(
    seq2seq: Any, lines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--num_beams", "2", "--check", "true"]
    main(["translate", str(seq2seq.folder), "--input", str(lines), *options])
    plain = capsys.readouterr()
    main(["translate", str(seq2seq.folder), "--input", str(lines), *options, "--n_best", "2"])
    several = capsys.readouterr()
    assert "line 2: other numbers (missing: 5" in plain.err
    assert "line 2: other numbers (missing: 5" in several.err
    assert several.out.count("|||") == 2 * 4


def test_a_folder_is_translated_file_by_file(seq2seq: Any, tmp_path: Path, refused: Any) -> None:
    message = refused("translate", seq2seq.folder, "--input", tmp_path)
    assert message.startswith(f"{tmp_path} is a folder; give its files one by one: for file in {tmp_path}/*.po; do ")
