import json
import os
from pathlib import Path
from typing import Any

import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.data import mixing
from paperformer.training.data.corpus import Corpus, TextStream, build_corpus
from paperformer.training.data.readers.sources import Source, pair_reader, text_reader
from paperformer.training.data.readers.tables import Table
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.recipe.cleaning import Cleaning

PAIRS = [
    ("A dog.", "Ein Hund."),
    ("A cat.", "Eine Katze."),
    ("A dog.", "Ein Hund."),
    (" ", "leer"),
    ("Cafe\u0301", "Café"),
]


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> Source:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
    return Source(path=str(path))


def build(cache: Path, *sources: Source, cleaning: Cleaning | None = None, **options: Any) -> Corpus:
    readers = [(source, pair_reader(source, "en", "de")) for source in sources]
    return build_corpus(cache, "data.train", readers, cleaning or Cleaning(), ("en", "de"), **options)


def rows(corpus: Corpus) -> list[tuple[str, str]]:
    return [(row["source"], row["target"]) for row in corpus.dataset]


def test_text_is_cleaned_once_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_pairs(tmp_path / "a.tsv", PAIRS)
    corpus = build(tmp_path / "cache", source)
    assert rows(corpus) == [("A dog.", "Ein Hund."), ("A cat.", "Eine Katze."), ("Café", "Café")]
    assert len(corpus) == 3
    assert corpus.is_parallel
    assert list(corpus.texts("source")) == ["A dog.", "A cat.", "Café"]
    assert list(corpus.texts("source", "target"))[:3] == ["A dog.", "Ein Hund.", "A cat."]
    assert corpus.report["cleaning"]["rows"] == 5
    monkeypatch.setattr(Table, "chunks", None)  # it is not read again
    os.utime(tmp_path / "a.tsv", (1, 1))  # nor if it was only touched
    assert build(tmp_path / "cache", source).folder == corpus.folder


@pytest.mark.parametrize(
    "change",
    [
        {"cleaning": Cleaning(duplicates="keep")},
        {"skip_bad_lines": True},
        {"tag": "<2de>"},
        {"columns": [2, 1]},
        {"content": [("A cow.", "Eine Kuh.")]},
    ],
    ids=str,
)
def test_whatever_changes_the_text_is_noticed(tmp_path: Path, change: dict[str, Any]) -> None:
    source = write_pairs(tmp_path / "a.tsv", PAIRS)
    before = build(tmp_path / "cache", source)
    if "content" in change:
        write_pairs(tmp_path / "a.tsv", change.pop("content"))
    fields = {name: change.pop(name) for name in list(change) if name in ("tag", "columns")}
    after = build(tmp_path / "cache", Source(path=source.path, **fields), **change)
    assert after.folder != before.folder


def test_what_a_reader_was_told_besides_its_source_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    source = Source(path=str(tmp_path / "a.txt"))
    folders = {
        build_corpus(
            tmp_path / "cache", "data.train", [(source, text_reader(source, "text", documents))], Cleaning(), ("en",)
        ).folder
        for documents in ("joined", "each", "blank_line")
    }
    assert len(folders) == 3


def test_a_weight_does_not_change_the_text(tmp_path: Path) -> None:
    source = write_pairs(tmp_path / "a.tsv", PAIRS)
    heavier = Source(path=source.path, weight=3.0)
    assert build(tmp_path / "cache", heavier).folder == build(tmp_path / "cache", source).folder


def test_several_sources_keep_their_sizes_and_tags(tmp_path: Path) -> None:
    first = write_pairs(tmp_path / "a.tsv", PAIRS[:2])
    second = write_pairs(tmp_path / "b.tsv", [("A dog.", "Ein Hund."), ("A cow.", "Eine Kuh.")])
    second.tag = "<2de>"
    corpus = build(tmp_path / "cache", first, second)
    assert rows(corpus) == [*PAIRS[:2], ("<2de>A cow.", "Eine Kuh.")]  # the duplicate in the second source is left out
    assert corpus.sizes == [2, 1]
    assert [source["name"] for source in corpus.report["sources"]] == [
        str(tmp_path / name) for name in ("a.tsv", "b.tsv")
    ]


def test_sentences_of_the_evaluation_sets_are_left_out(tmp_path: Path) -> None:
    leak = ("The dog sleeps in the house.", "Der Hund schläft im Haus.")
    held_out = build(tmp_path / "cache", write_pairs(tmp_path / "test.tsv", [leak]))
    source = write_pairs(tmp_path / "a.tsv", [("the dog sleeps in the house", "anders"), *PAIRS[:2]])
    assert rows(build(tmp_path / "cache", source, held_out=[held_out])) == PAIRS[:2]
    tagged = write_pairs(tmp_path / "tagged.tsv", [(leak[0], "x"), ("y", leak[1])])
    tagged.tag = "<2de>"
    also_held_out = [build(tmp_path / "cache", tagged, cleaning=Cleaning(max_length_ratio=0))]
    assert rows(build(tmp_path / "cache", source, held_out=also_held_out)) == PAIRS[:2]  # a tag hides no leak
    kept = build(tmp_path / "cache", source, held_out=[held_out], cleaning=Cleaning(leak_check=False))
    assert len(kept) == 3


def test_bad_lines_stop_the_run_or_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\nno tab\nc\td\n")
    source = Source(path=str(tmp_path / "a.tsv"))
    with pytest.raises(InputError, match=r"a\.tsv, line 2"):
        build(tmp_path / "cache", source)
    assert not list((tmp_path / "cache").glob("text-*/"))
    corpus = build(tmp_path / "cache", source, skip_bad_lines=True)
    assert rows(corpus) == [("a", "b"), ("c", "d")]
    [facts] = corpus.report["sources"]
    assert sum(facts["bad_lines"].values()) == 1
    assert next(iter(facts["places"].values())) == [f"{tmp_path / 'a.tsv'}, line 2"]


def test_nothing_left_is_an_error_that_says_where_the_reasons_are(tmp_path: Path) -> None:
    source = write_pairs(tmp_path / "a.tsv", [(" ", "x")])
    with pytest.raises(InputError, match=r"data\.train: nothing is left of .*a\.tsv; .*report\.json says why") as error:
        build(tmp_path / "cache", source)
    report = json.loads(Path(str(error.value).split("; ")[1].removesuffix(" says why")).read_text("utf-8"))
    assert report["cleaning"]["kept"] == 0


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_pairs(tmp_path / "a.tsv", PAIRS)
    original = Table.chunks

    def chunks_and_a_change(self: Table, bad: BadLines) -> Any:
        yield from original(self, bad)
        with (tmp_path / "a.tsv").open("a") as file:
            file.write("more\tmehr\n")

    monkeypatch.setattr(Table, "chunks", chunks_and_a_change)
    with pytest.raises(InputError, match="changed while it was read"):
        build(tmp_path / "cache", source)
    assert not list((tmp_path / "cache").glob("text-*/"))


def test_documents_are_counted_and_each_source_begins_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\nthree\n\n\nfour\n")
    (tmp_path / "b.txt").write_text("five\nsix\n")
    sources = [Source(path=str(tmp_path / "a.txt"), documents="blank_line"), Source(path=str(tmp_path / "b.txt"))]
    readers = [(source, text_reader(source)) for source in sources]
    corpus = build_corpus(tmp_path / "cache", "data.train", readers, Cleaning(), ("en",))
    assert corpus.documents == [3, 1]
    assert not corpus.is_parallel
    assert "".join(corpus.texts("text")).replace("\n", "") == "onetwothreefourfivesix"


def test_a_stream_gives_what_a_corpus_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "ROWS_A_DRAW", 10)
    sources = [write_pairs(tmp_path / "a.tsv", PAIRS), write_pairs(tmp_path / "b.tsv", [("A cow.", "Eine Kuh.")])]
    readers = [(source, pair_reader(source, "en", "de")) for source in sources]

    def streamed(number: int) -> list[tuple[str, ...]]:
        stream = TextStream("data.train", readers[:number], Cleaning(), ("en", "de"))
        return [tuple(row.values()) for chunk in stream.chunks(0) for row in chunk.to_pylist()]

    assert streamed(1) == rows(build(tmp_path / "cache", sources[0]))
    assert set(streamed(2)) == set(rows(build(tmp_path / "cache", *sources)))  # as often as their weights say
    stream = TextStream("data.train", readers, Cleaning(), ("en", "de"))
    assert [chunk.to_pylist() for chunk in stream.chunks(1)] == [chunk.to_pylist() for chunk in stream.chunks(1)]
    assert set(stream.texts("source")) == {source for source, _ in streamed(2)}
    empty = TextStream("data.train", [readers[0]], Cleaning(min_words=9), ("en", "de"))
    with pytest.raises(InputError, match=r"data\.train: nothing is left of .*a\.tsv after cleaning"):
        list(empty.chunks(0))
