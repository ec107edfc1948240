from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.data.built_in.readers import BuiltInPairs, BuiltInText
from paperformer.training.data.readers import sources
from paperformer.training.data.readers.gettext_catalogues import GettextCatalogues
from paperformer.training.data.readers.hub_datasets import HubDataset
from paperformer.training.data.readers.json_lines import JsonLines
from paperformer.training.data.readers.parallel_files import ParallelFiles
from paperformer.training.data.readers.parquet import ParquetFile
from paperformer.training.data.readers.reader import Columns, FileFormat, FileReader, Reader
from paperformer.training.data.readers.sources import Source, pair_reader, parse_sources, text_reader
from paperformer.training.data.readers.tables import Table
from paperformer.training.data.readers.text_files import TextFile
from paperformer.training.data.readers.tmx import TranslationMemory
from paperformer.training.data.text.bad_lines import BadLines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = ["a.tsv", "b.csv.gz", "c.jsonl.zst", "d.parquet", "e.tmx.xz", "f.en", "f.de.bz2", "g.txt", "h.log"]
    names += ["po/de.po", "shards/0.parquet"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"path": "a.tsv"}, Table(path=Path("a.tsv"), columns=(1, 2), delimiter="\t", names=("en", "de"))),
        ({"path": "a"}, Table(path=Path("a.tsv"), columns=(1, 2), delimiter="\t", names=("en", "de"))),
        ({"path": "a.tsv", "columns": [3, 1]}, Table(path=Path("a.tsv"), columns=(3, 1), delimiter="\t")),
        ({"path": "b.csv"}, Table(path=Path("b.csv.gz"), columns=("en", "de"), delimiter=",")),
        ({"path": "c.jsonl"}, JsonLines(path=Path("c.jsonl.zst"), columns=("en", "de"))),
        ({"path": "c", "columns": ["t.en", "t.de"]}, JsonLines(path=Path("c.jsonl.zst"), columns=("t.en", "t.de"))),
        ({"path": "d.parquet"}, ParquetFile(path=Path("d.parquet"), columns=("en", "de"))),
        ({"path": "shards"}, ParquetFile(path=Path("shards"), columns=("en", "de"))),
        ({"path": "e.tmx"}, TranslationMemory(path=Path("e.tmx.xz"), source_language="en", target_language="de")),
        ({"path": "f"}, ParallelFiles(source=Path("f.en"), target=Path("f.de"))),
        ({"path": "g.txt", "target_path": "h.log"}, ParallelFiles(source=Path("g.txt"), target=Path("h.log"))),
        ({"path": "po"}, GettextCatalogues(path=Path("po"), target_language="de")),
        ({"path": "po/de.po"}, GettextCatalogues(path=Path("po/de.po"), target_language="de")),
        ({"path": "h.log", "format": "jsonl"}, JsonLines(path=Path("h.log"), columns=("en", "de"))),
    ],
    ids=str,
)
def test_the_ending_tells_the_reader_of_pairs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], expected: object
) -> None:
    monkeypatch.chdir(folder)
    assert pair_reader(Source(**fields), "en", "de") == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"path": "g.txt"}, TextFile(path=Path("g.txt"), documents="joined")),
        ({"path": "g", "documents": "each"}, TextFile(path=Path("g.txt"), documents="each")),
        ({"path": "h.log"}, TextFile(path=Path("h.log"), documents="joined")),
        ({"path": "a.tsv"}, Table(path=Path("a.tsv"), columns=(1,), delimiter="\t", names=("text",))),
        ({"path": "c.jsonl"}, JsonLines(path=Path("c.jsonl.zst"), columns=("text",))),
        ({"path": "d.parquet", "columns": ["body"]}, ParquetFile(path=Path("d.parquet"), columns=("body",))),
    ],
    ids=str,
)
def test_the_ending_tells_the_reader_of_running_text(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], expected: object
) -> None:
    monkeypatch.chdir(folder)
    assert text_reader(Source(**fields)) == expected


def test_hub_and_built_in() -> None:
    hub = Source(hub="me/data", config="en-de", split="dev", revision="v1")
    assert pair_reader(hub, "en", "de") == HubDataset(
        name="me/data", config="en-de", split="dev", revision="v1", columns=("en", "de")
    )
    assert text_reader(hub, "body", "joined") == HubDataset(
        name="me/data", config="en-de", split="dev", revision="v1", columns=("body",), documents="joined"
    )
    cldr = Source(built_in="cldr", split="test")
    assert pair_reader(cldr, "en", "fr") == BuiltInPairs(dataset="cldr", split="test", languages=("en", "fr"))
    assert text_reader(Source(built_in="shakespeare")) == BuiltInText(dataset="shakespeare", split="train")


@pytest.mark.parametrize(
    ("value", "dataset", "expected"),
    [
        ("corpus.tsv", None, [Source(path="corpus.tsv")]),
        ("dev", "FOLDER", [Source(path="FOLDER/dev")]),
        ("dev", "me/data", [Source(hub="me/data", split="dev", config="en-de")]),
        ("dev", "built-in:cldr", [Source(built_in="cldr", split="dev")]),
        ({"path": "a.tmx", "weight": 2}, "me/data", [Source(path="a.tmx", weight=2)]),
        (
            ["a.tsv", {"hub": "me/data", "tag": "<2de>"}],
            None,
            [Source(path="a.tsv"), Source(hub="me/data", tag="<2de>")],
        ),
    ],
    ids=str,
)
def test_names_mappings_and_lists(tmp_path: Path, value: Any, dataset: str | None, expected: list[Source]) -> None:
    dataset = str(tmp_path) if dataset == "FOLDER" else dataset
    for source in expected:
        source.path = source.path and source.path.replace("FOLDER", str(tmp_path))
    assert parse_sources(value, "data.train", dataset, "en-de") == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"data\.train is an empty list; it must name a source"),
        (7, r"data\.train is 7; it must be a path, or a mapping"),
        ({"pth": "a.tsv"}, r"data\.train: there is no field pth; did you mean path\?"),
        (["a.tsv", {"weight": 2}], r"data\.train, source 2: has neither path nor hub nor built_in; give one of them"),
        ({"path": "a", "hub": "b"}, r"data\.train: has path and hub; give one of them"),
        ({"path": "a", "weight": 0}, r"data\.train: weight is 0; it must be greater than 0"),
        ({"path": "a", "weight": "much"}, r"data\.train: .*weight.*much"),
        ({"path": "a", "format": "docx"}, r"data\.train: .*format.*docx"),
    ],
    ids=str,
)
def test_what_cannot_be_a_source(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_sources(value, "data.train", None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": "x"}, r"there is no x, nor x\.en and x\.de, x\.tsv, .*nor any of these compressed"),
        (
            {"path": "a.tsv", "columns": [1]},
            r"a\.tsv: columns has 1 entries; it must have the source's and the target's",
        ),
        (
            {"path": "g.txt"},
            r"g\.txt is a text file; pairs come from two parallel files .* {path: g\.txt, format: tsv}",
        ),
        ({"path": "a.tsv", "documents": "each"}, r"a\.tsv: documents is for running text"),
        (
            {"path": "h.log"},
            r"h\.log: its name does not tell its format; give it, tsv, .* format: tsv}, or, of parallel",
        ),
        ({"path": "empty"}, r"empty is a folder without \.parquet, \.po or \.mo files"),
    ],
    ids=str,
)
def test_what_holds_no_pairs(folder: Path, monkeypatch: pytest.MonkeyPatch, fields: Any, message: str) -> None:
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match=message):
        pair_reader(Source(**fields), "en", "de")


def test_a_misspelt_folder_is_not_looked_up_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data\.dataset: there is no folder \./nowhere"):
        parse_sources("train", "data.train", "./nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"data\.dataset is the file .*file; it must be a folder"):
        parse_sources("train", "data.train", str(tmp_path / "file"))


@dataclass(frozen=True, kw_only=True)
class SlashedFile(FileReader):
    """A format that somebody adds: one row a line, with a slash between columns."""

    columns: Columns

    def rows(self, bad: BadLines) -> Iterator[tuple[str, ...]]:
        for line in self.path.read_text("utf-8").splitlines():
            values = line.split("/")
            yield tuple(values[int(column) - 1] for column in self.columns)


def test_a_format_is_added_by_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slashed = FileFormat(
        name="slashed",
        endings=(".sl",),
        reader=lambda path, request: SlashedFile(path=path, columns=request.columns or (1, 2)[: len(request.names)]),
        in_folders="*.sl",
    )
    monkeypatch.setattr(sources, "FORMATS", [*sources.FORMATS, slashed])
    (tmp_path / "a.sl").write_text("one/eins/x\ntwo/zwei/y\n")
    (tmp_path / "b.log").write_text("three/drei\n")

    def rows(reader: Reader) -> list[dict[str, str]]:
        return [row for chunk in reader.chunks(BadLines()) for row in chunk.to_pylist()]

    pairs = [{"source": "one", "target": "eins"}, {"source": "two", "target": "zwei"}]
    for path in ("a.sl", "a"):
        reader = pair_reader(Source(path=str(tmp_path / path)), "en", "de")
        assert rows(reader) == pairs
        assert (reader.name, reader.files()) == (str(tmp_path / "a.sl"), [tmp_path / "a.sl"])
    logged = Source(path=str(tmp_path / "b.log"), format="slashed", columns=[2, 1])
    assert rows(pair_reader(logged, "en", "de")) == [{"source": "drei", "target": "three"}]
    assert [row["text"] for row in rows(text_reader(Source(path=str(tmp_path / "a.sl"), columns=[3])))] == ["x", "y"]
    assert pair_reader(Source(path=str(tmp_path)), "en", "de").name == str(tmp_path)
    with pytest.raises(InputError, match="every row of a slashed file is a document"):
        text_reader(Source(path=str(tmp_path / "a.sl")), documents="joined")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"is a folder without \.parquet, \.po, \.mo or \.sl files"):
        pair_reader(Source(path=str(tmp_path / "empty")), "en", "de")
    (tmp_path / "c.txt").write_text("text\n")
    with pytest.raises(InputError, match=r"or from \.tsv, .*, \.mo or \.sl;"):
        pair_reader(Source(path=str(tmp_path / "c.txt")), "en", "de")
    with pytest.raises(InputError, match=r"format is docx; it must be parallel, tsv, .* or slashed"):
        parse_sources({"path": "a", "format": "docx"}, "data.train", None)
