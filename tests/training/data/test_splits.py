import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.data.corpus import Corpus, TextStream
from paperformer.training.data.readers.hub_datasets import HubDataset
from paperformer.training.data.readers.sources import Source
from paperformer.training.data.splits import (
    cache_folder,
    domains_of_rows,
    domains_of_test,
    pair_splits,
    text_splits,
    training_sources,
)
from paperformer.training.recipe.data import ParallelData, TextData
from paperformer.training.recipe.recipe import Recipe

MakePairRecipe = Callable[..., Recipe[ParallelData]]
MakeTextRecipe = Callable[..., Recipe[TextData]]


def rows(corpus: Corpus | TextStream) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for chunk in corpus.chunks() for row in chunk.to_pylist()]


def test_splits_of_pairs(seq2seq_recipe: MakePairRecipe) -> None:
    splits = pair_splits(seq2seq_recipe())
    assert [len(rows(corpus)) for corpus in (splits.train, splits.validation, splits.test)] == [48, 5, 5]
    assert rows(splits.validation)[0] == ("A dog sleeps.", "Ein Hund schläft.")
    assert splits.weights == [1.0]
    assert splits.report().keys() == {"train", "validation", "test"}


def test_splits_of_text(lm_recipe: MakeTextRecipe, text_folder: Path) -> None:
    splits = text_splits(lm_recipe())
    for split in ("train", "validation", "test"):
        assert "".join(getattr(splits, split).texts("text")) == (text_folder / f"{split}.txt").read_text("utf-8")


def test_evaluation_sets_are_taken_as_they_are_and_training_text_is_cleaned(
    seq2seq_recipe: MakePairRecipe, tmp_path: Path
) -> None:
    dirty = "  A cafe\u0301 \tEin Café\n" * 2 + " \tx\n" + "A good deal of it.\tA good deal of it.\n"
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(dirty, "utf-8")
    fields = {"data__dataset": tmp_path, "data__validation": "dev", "data__test": "dev"}
    splits = pair_splits(seq2seq_recipe(**fields, cleaning__duplicates="exact"))
    assert rows(splits.train) == [("A café", "Ein Café")]
    assert rows(splits.test) == [("  A cafe\u0301 ", "Ein Café")] * 2 + [("A good deal of it.",) * 2]
    with pytest.raises(InputError, match=r"data\.train: nothing is left of .*train\.tsv"):
        pair_splits(seq2seq_recipe(**fields, cleaning__leak_check="true"))


def test_a_missing_file_is_noticed_before_anything_is_cleaned(seq2seq_recipe: MakePairRecipe, tmp_path: Path) -> None:
    recipe = seq2seq_recipe(data__test="nowhere")
    with pytest.raises(InputError, match=r"there is no .*nowhere, nor"):
        pair_splits(recipe)
    assert not cache_folder(recipe).exists()


def test_sources_of_all_kinds_and_their_weights(seq2seq_recipe: MakePairRecipe, pairs_folder: Path) -> None:
    train = f"[train, {{path: {pairs_folder / 'test'}, weight: 3, tag: <2de>}}]"
    with pytest.raises(InputError, match=r"tag is <2de>; tokenizer\.user_symbols must have it"):
        pair_splits(seq2seq_recipe(data__train=train))
    recipe = seq2seq_recipe(data__train=train, tokenizer__user_symbols="[<2de>]")
    splits = pair_splits(recipe)
    assert splits.weights == [1.0, 3]
    assert isinstance(splits.train, Corpus)
    assert splits.train.sizes == [48, 5]
    assert rows(splits.train)[-1][0].startswith("<2de>The ")
    assert training_sources(recipe.data)[0] == Source(path=str(pairs_folder / "train"))


def test_streams_write_nothing_but_the_evaluation_sets(seq2seq_recipe: MakePairRecipe) -> None:
    recipe = seq2seq_recipe(data__streaming="true")
    splits = pair_splits(recipe)
    assert isinstance(splits.train, TextStream)
    assert len(rows(splits.train)) == 48
    assert len(list(cache_folder(recipe).glob("text-*/"))) == 2
    assert splits.report().keys() == {"validation", "test"}


def test_data_sets_of_the_hub_are_streamed_when_text_is(
    seq2seq_recipe: MakePairRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "train.jsonl").write_text('{"en": "a", "de": "b"}\n')
    monkeypatch.chdir(tmp_path)
    splits = pair_splits(seq2seq_recipe(data__train="{hub: ./repository}", data__streaming="true"))
    assert isinstance(splits.train, TextStream)
    [(_, reader)] = splits.train.sources
    assert isinstance(reader, HubDataset)
    assert reader.streaming
    assert rows(splits.train) == [("a", "b")]


def test_the_cache_lies_beside_the_runs_or_where_it_is_told(seq2seq_recipe: MakePairRecipe, tmp_path: Path) -> None:
    assert cache_folder(seq2seq_recipe()) == tmp_path / "runs" / ".cache"
    assert cache_folder(seq2seq_recipe(data__cache_dir=tmp_path / "elsewhere")) == tmp_path / "elsewhere"


def test_domains_are_named_by_the_recipe_or_by_what_tells_sources_apart(seq2seq_recipe: MakePairRecipe) -> None:
    def domains(**changes: Any) -> list[str]:
        return domains_of_test(seq2seq_recipe(**changes).data)

    (folder,) = domains()
    assert folder.endswith("/test")
    assert domains(data__test="[{path: x/a.tsv, domain: law}, {path: x/b.tsv, domain: law}, {path: x/c.tsv}]") == [
        "law", "law", "x/c.tsv",
    ]  # fmt: skip
    of_the_hub = "{hub: some/set, split: test}, {hub: some/set, split: dev, config: c, tag: <2de>}, {hub: other/set}"
    assert domains(data__test=f"[{of_the_hub}]") == ["some/set (test)", "some/set (c, dev, <2de>)", "other/set"]
    held_out = {"data__train": "[{path: a.tsv, domain: law}, {path: b.tsv, domain: news}]", "data__hold_out": 0.1}
    assert domains(**held_out) == ["law", "news"]
    with pytest.raises(InputError, match="domain is empty"):
        domains(data__test="[{path: a.tsv, domain: ''}]")


ROWS = [
    ("a dog", "ein Hund", "animals"),
    ("", "leer", "left out"),
    ("a cat", "eine Katze", ""),
    ("law", "Recht", "law"),
]
ROWS += [(f"row {number} of them", f"Zeile {number} davon", f"kind {number % 3}") for number in range(12)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.tsv", "domain_column: 3"),
        ("named.tsv", "domain_column: kind"),
        ("x.csv", "columns: [en, de], domain_column: kind"),
        ("x.jsonl", "domain_column: kind"),
        ("x.parquet", "domain_column: kind"),
    ],
)
@pytest.mark.parametrize("is_held_out", [False, True])
def test_a_column_says_the_domain_of_each_row(
    seq2seq_recipe: MakePairRecipe, tmp_path: Path, name: str, options: str, is_held_out: bool
) -> None:
    """What is left out, or held out, moves no domain to another row."""
    lines = ["\t".join(row) for row in ROWS]
    (tmp_path / "x.tsv").write_text("\n".join(lines), "utf-8")
    (tmp_path / "named.tsv").write_text("\n".join(["en\tde\tkind", *lines]), "utf-8")
    (tmp_path / "x.csv").write_text(
        "\n".join(["kind,en,de", *(f"{row[2]},{row[0]},{row[1]}" for row in ROWS)]), "utf-8"
    )
    objects = [dict(zip(("en", "de", "kind"), row, strict=True)) for row in ROWS]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, objects)), "utf-8")
    of_parquet = pa.Table.from_pylist([row | {"kind": row["kind"] or None} for row in objects])
    pq.write_table(of_parquet, tmp_path / "x.parquet")
    (tmp_path / "y.tsv").write_text("one more\tnoch eins\n", "utf-8")
    sources = f"[{{path: {tmp_path / 'y.tsv'}}}, {{path: {tmp_path / name}, domain: other, {options}}}]"
    held_out = {"data__train": sources, "data__hold_out": 0.25}
    recipe = seq2seq_recipe(**(held_out if is_held_out else {"data__test": sources}))
    splits = pair_splits(recipe)
    expected = {"one more": "y.tsv"} | {source: domain or "other" for source, _, domain in ROWS}
    found = [(source, domain.rpartition("/")[2]) for (source, *_), domain
             in zip(rows(splits.test), domains_of_rows(recipe.data, splits.test), strict=True)]  # fmt: skip
    assert found == [(source, expected[source]) for source, *_ in rows(splits.test)]
    assert len(found) == len(ROWS) or (is_held_out and len(found) > 1)
    assert isinstance(splits.train, Corpus)
    assert "domain" not in splits.train.dataset.column_names


def test_a_domain_column_that_is_not_there_or_cannot_be(seq2seq_recipe: MakePairRecipe, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\tb\n", "utf-8")
    (tmp_path / "x.tmx").write_text("<tmx/>", "utf-8")
    for source, message in (
        (f"{{path: {tmp_path / 'x.tmx'}, domain_column: 3}}", r"x\.tmx: domain_column is 3; only tables"),
        ("{built_in: cldr, domain_column: 3}", "domain_column is 3; only tables"),
        (f"{{path: {tmp_path / 'x.tsv'}, domain_column: kind}}", r"has no column 'kind'; its columns are 'a', 'b'"),
        (f"{{path: {tmp_path / 'x.tsv'}, domain_column: 0}}", r"has no column 0; columns are numbered from 1"),
        (f"{{path: {tmp_path / 'x.tsv'}, domain_column: 3}}", r"columns: 2; there must be at least 3"),
    ):
        with pytest.raises(InputError, match=message):
            pair_splits(seq2seq_recipe(data__test=f"[{source}]"))


def test_a_column_says_the_domain_of_each_document(lm_recipe: MakeTextRecipe, tmp_path: Path) -> None:
    objects = [{"text": f"Words of number {number}.", "kind": f"kind {number % 2}"} for number in range(6)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, objects)), "utf-8")
    source = f"[{{path: {tmp_path / 'x.jsonl'}, domain_column: kind}}]"
    recipe = lm_recipe(data__test=source)
    test = text_splits(recipe).test
    assert list(test.texts("text")) == [row["text"] for row in objects]
    assert domains_of_rows(recipe.data, test) == [row["kind"] for row in objects]
    with pytest.raises(InputError, match=r"whole sections are held out, so give data\.test"):
        text_splits(lm_recipe(data__train=source, data__hold_out=0.1))
