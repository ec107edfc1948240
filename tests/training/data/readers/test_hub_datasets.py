import json
import os
from contextlib import suppress

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets.exceptions import DatasetNotFoundError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.readers import hub_datasets
from paperformer.training.data.readers.hub_datasets import HubDataset
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.chunks import PAIR_SCHEMA, TEXT_SCHEMA

from ....examples import examples

both_modes = pytest.mark.parametrize("skip", [False, True])
both_ways = pytest.mark.parametrize("streaming", [False, True])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def write_parquet(path, **columns):
    pq.write_table(pa.table(columns), path)


def reader(folder, *columns, split="train", config=None, **settings):
    return HubDataset(name=str(folder), config=config, split=split, columns=columns, **settings)


def rows(dataset, bad=None):
    read = []
    for chunk in dataset.chunks(bad or BadLines()):
        assert chunk.schema == (PAIR_SCHEMA if len(dataset.columns) == 2 else TEXT_SCHEMA)
        chunk.validate(full=True)
        assert all(column.null_count == 0 for column in chunk.columns)
        read += zip(*(column.to_pylist() for column in chunk.columns), strict=True)
    return read


@both_modes
@both_ways
def test_pairs_of_two_columns(folder, streaming, skip):
    write_parquet(folder / "train.parquet", en=["one", "two"], id=[1, 2], de=["eins", "zwei"])
    assert rows(reader(folder, "en", "de", streaming=streaming), BadLines(skip=skip)) == [
        ("one", "eins"),
        ("two", "zwei"),
    ]
    assert rows(reader(folder, "de", "en", streaming=streaming))[0] == ("eins", "one")


@both_ways
@pytest.mark.parametrize("columns", [("en", "de"), ("translation.en", "translation.de"), ("translation.en", "de")])
def test_translations_are_found_by_their_language(folder, columns, streaming):
    write_parquet(folder / "train.parquet", translation=[{"de": "eins", "en": "one"}, {"de": "zwei", "en": "two"}])
    assert rows(reader(folder, *columns, streaming=streaming)) == [("one", "eins"), ("two", "zwei")]


@both_ways
def test_a_column_counts_more_than_the_translation_of_that_name(folder, streaming):
    write_parquet(folder / "train.parquet", translation=[{"en": "inner", "de": "innen"}], en=["outer"])
    assert rows(reader(folder, "en", "de", streaming=streaming)) == [("outer", "innen")]


@both_ways
def test_columns_nested_deeper_and_json_lines(folder, streaming):
    lines = [{"a": {"b": {"text": text}}, "n": 1} for text in ("one\ntwo", "drei")]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert rows(reader(folder, "a.b.text", streaming=streaming)) == [("one\ntwo", True), ("drei", True)]


@both_ways
@pytest.mark.parametrize(("documents", "begins"), [("each", [True] * 5), ("joined", [True] + [False] * 4)])
def test_documents(folder, documents, begins, streaming, monkeypatch):
    monkeypatch.setattr(hub_datasets, "ROWS_A_READ", 2)
    write_parquet(folder / "train.parquet", text=[None, *"abcde"])
    dataset = reader(folder, "text", documents=documents, streaming=streaming)
    assert rows(dataset, BadLines(skip=True)) == list(zip("abcde", begins, strict=True))


@both_ways
def test_configurations_and_splits(folder, streaming):
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: small\n  data_files: small/*.parquet\n"
        "- config_name: large\n  data_files:\n  - {split: train, path: large/a.parquet}\n"
        "  - {split: valid, path: large/b.parquet}\n---\n"
    )
    for name in ("small/a", "large/a", "large/b"):
        (folder / name).parent.mkdir(exist_ok=True)
        write_parquet(folder / f"{name}.parquet", text=[name])
    assert rows(reader(folder, "text", config="small", streaming=streaming)) == [("small/a", True)]
    assert rows(reader(folder, "text", config="large", split="valid", streaming=streaming)) == [("large/b", True)]
    with pytest.raises(
        InputError, match=r"data set .*Config name is missing.*available configs: \['small', 'large'\]$"
    ):
        rows(reader(folder, "text", streaming=streaming))
    with pytest.raises(InputError, match=r"data set .*config tiny.* not found\. Available: \['small', 'large'\]$"):
        rows(reader(folder, "text", config="tiny", streaming=streaming))
    with pytest.raises(InputError, match=r"data set .*split test: .*\['train', 'valid'\]\.?$"):
        rows(reader(folder, "text", config="large", split="test", streaming=streaming))


def test_parts_of_a_split(folder):
    write_parquet(folder / "train.parquet", text=list("abcde"))
    assert rows(reader(folder, "text", split="train[1:3]")) == [("b", True), ("c", True)]
    with pytest.raises(InputError, match="Bad split"):
        rows(reader(folder, "text", split="train[1:3]", streaming=True))


@both_modes
@both_ways
def test_columns_that_do_not_exist_or_hold_no_text(folder, streaming, skip):
    write_parquet(folder / "train.parquet", translation=[{"en": "one", "de": "eins"}], id=[1], tags=[["x"]])
    bad = BadLines(skip=skip)
    with pytest.raises(InputError, match=r"no column fr; there are translation\.en, translation\.de, id, tags$"):
        rows(reader(folder, "en", "fr", streaming=streaming), bad)
    for column, kind in (("id", "int64"), ("tags", "list")):
        with pytest.raises(InputError, match=rf"column {column} holds {kind}.*; it must hold text"):
            rows(reader(folder, "en", column, streaming=streaming), bad)


@both_ways
@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (None, "null", r"row 3: column 'de' is null; it must be a string"),
        ("a\0b", "NUL byte", r"row 3: column 'de' has NUL at byte 2"),
    ],
)
def test_bad_rows(folder, streaming, value, reason, detail, monkeypatch):
    monkeypatch.setattr(hub_datasets, "ROWS_A_READ", 2)
    write_parquet(folder / "train.parquet", en=list("abcd"), de=["x", "y", value, "z"])
    dataset = reader(folder, "en", "de", streaming=streaming)
    with pytest.raises(InputError, match=detail):
        rows(dataset)
    bad = BadLines(skip=True)
    assert rows(dataset, bad) == [("a", "x"), ("b", "y"), ("d", "z")]
    assert bad.counts == {reason: 1}
    assert bad.places[reason] == [f"data set {folder}, split train, row 3"]


def test_a_row_with_two_faults_is_counted_once(folder):
    write_parquet(folder / "train.parquet", en=["a", "b\0"], de=["x", None])
    bad = BadLines(skip=True)
    assert rows(reader(folder, "en", "de"), bad) == [("a", "x")]
    assert bad.counts == {"NUL byte": 1}


@both_ways
def test_a_missing_translation_and_a_column_of_nulls(folder, streaming):
    write_parquet(folder / "train.parquet", translation=[None, {"en": "a", "de": "b"}], empty=pa.nulls(2))
    bad = BadLines(skip=True)
    assert rows(reader(folder, "en", "de", streaming=streaming), bad) == [("a", "b")]
    assert rows(reader(folder, "empty", streaming=streaming), bad) == []
    assert bad.counts == {"null": 3}


@both_ways
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_text_that_is_not_utf_8(folder, ending, streaming):
    path = folder / f"train.{ending}"
    if ending == "parquet":
        write_parquet(path, text=["good", "Xrger", "fine"])
    else:
        path.write_text('{"text": "good"}\n{"text": "Xrger"}\n{"text": "fine"}\n')
    path.write_bytes(path.read_bytes().replace(b"Xrger", b"\xc4rger"))
    dataset = reader(folder, "text", streaming=streaming)
    with pytest.raises(InputError, match=r"row 2: column 'text' has byte 0xc4 at byte 1, which is not UTF-8"):
        rows(dataset)
    bad = BadLines(skip=True)
    assert [text for text, _ in rows(dataset, bad)] == ["good", "fine"]
    assert bad.counts == {"not UTF-8": 1}


@both_modes
@both_ways
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.parquet", b"PAR1 is not all"),
        ("train.jsonl", b'{"text": "a"}\n{"text": \n'),
        ("train.jsonl", b'{"text": "\\ud800"}\n'),
    ],
)
def test_damaged_files(folder, streaming, name, content, skip):
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"data set {folder}, split train: \S+"):
        rows(reader(folder, "text", streaming=streaming), BadLines(skip=skip))


@both_ways
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            DatasetNotFoundError("Dataset 'a/b' doesn't exist on the Hub"),
            "exist on the Hub; check the name, and log in",
        ),
        (DatasetNotFoundError("Dataset 'a/b' is a gated dataset"), r"gated dataset.*`hf auth login` if it is private"),
        (ConnectionError("Couldn't reach 'a/b' on the Hub\n(offline)"), r"\(offline\); check the name and the network"),
        (RuntimeError(""), "data set a/b, config c, split train: RuntimeError"),
    ],
)
def test_faults_of_the_hub_are_one_line(monkeypatch, error, message, streaming):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", fail)
    monkeypatch.setattr(datasets, "load_dataset_builder", fail)
    dataset = reader("a/b", "text", config="c", streaming=streaming)
    assert dataset.files() == []
    for use in (dataset.identity, lambda: rows(dataset)):
        with pytest.raises(InputError, match=message) as caught:
            use()
        assert "\n" not in str(caught.value)


def test_a_connection_that_is_lost_while_streaming(folder, monkeypatch):
    write_parquet(folder / "train.parquet", text=["a"])

    def lost(*_, **__):
        raise ConnectionError("connection reset")
        yield

    monkeypatch.setattr(datasets.IterableDataset, "iter", lost)
    with pytest.raises(InputError, match="connection reset; check"):
        rows(reader(folder, "text", streaming=True))


@both_ways
def test_revision_and_configuration_reach_the_library(monkeypatch, streaming):
    asked = {}

    def load(name, config, **settings):
        asked.update(settings, name=name, config=config)
        raise ValueError("enough")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(InputError, match="enough"):
        rows(reader("a/b", "text", config="c", revision="v1", streaming=streaming))
    assert asked == {"name": "a/b", "config": "c", "split": "train", "revision": "v1", "streaming": streaming}


def test_the_identity_changes_with_the_data(folder):
    write_parquet(folder / "train.parquet", text=["a"])
    write_parquet(folder / "test.parquet", text=["a"])
    before = reader(folder, "text").identity()
    assert reader(folder, "text", streaming=True).identity() == before
    assert reader(folder, "text", split="test").identity() != before
    write_parquet(folder / "train.parquet", text=["b"])
    os.utime(folder / "train.parquet", (1, 1))  # clocks may be too coarse to tell
    assert reader(folder, "text").identity() != before
    assert rows(reader(folder, "text")) == [("b", True)]  # nor does `datasets` take the old one from its cache


def test_chunks_have_a_limited_size(monkeypatch):
    texts = ["x" * 30, "y" * 90, "z" * 250, *["w" * 10] * 50]
    table = pa.table({"text": pa.array([*texts, None], pa.large_string())})
    monkeypatch.setattr(HubDataset, "_tables", lambda self: iter([table.slice(0, 20), table.slice(20)]))
    monkeypatch.setattr(hub_datasets, "CHARACTERS_A_CHUNK", 100)
    bad = BadLines(skip=True)
    chunks = list(reader("x", "text").chunks(bad))
    assert bad.places == {"null": ["data set x, split train, row 54"]}
    assert [text for chunk in chunks for text in chunk["text"].to_pylist()] == texts
    assert all(len(chunk) == 1 or sum(map(len, chunk["text"].to_pylist())) < 200 for chunk in chunks)
    assert len(chunks) > 5


@both_ways
def test_it_is_read_in_batches(folder, streaming, monkeypatch):
    monkeypatch.setattr(hub_datasets, "ROWS_A_READ", 100)
    write_parquet(folder / "train.parquet", text=[f"row {row}" for row in range(1_000)])
    chunks = list(reader(folder, "text", streaming=streaming).chunks(BadLines()))
    assert [len(chunk) for chunk in chunks] == [100] * 10
    assert chunks[9]["text"][99].as_py() == "row 999"


kinds = st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
values = st.none() | st.binary(max_size=6) | st.text(max_size=6).map(str.encode)


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables=st.lists(st.lists(st.tuples(values, values), max_size=6), max_size=3), kind=kinds, nested=st.booleans())
def test_kept_and_counted_rows_add_up(tables, kind, nested):
    def is_text(content):
        with suppress(UnicodeDecodeError):
            return content is not None and "\0" not in content.decode()
        return False

    def column(pairs, side):
        content = pa.array([pair[side] for pair in pairs], pa.binary())
        text = pa.Array.from_buffers(pa.string(), len(content), content.buffers(), content.null_count)
        if pa.types.is_dictionary(kind):  # of values that Arrow itself takes
            text = pa.array([pair[side].decode() if is_text(pair[side]) else None for pair in pairs], pa.string())
            return text.dictionary_encode()
        return text.cast(kind)

    def table(pairs):
        columns = [column(pairs, side) for side in (0, 1)]
        if nested:
            return pa.table({"translation": pa.StructArray.from_arrays(columns, ["en", "de"])})
        return pa.table(dict(zip(("en", "de"), columns, strict=True)))

    dataset = reader("x", "en", "de")
    object.__setattr__(dataset, "_tables", lambda: iter([table(pairs) for pairs in tables]))
    pairs = [pair for pairs in tables for pair in pairs]
    good = [(source.decode(), target.decode()) for source, target in pairs if is_text(source) and is_text(target)]
    bad = BadLines(skip=True)
    assert rows(dataset, bad) == good
    assert len(good) + bad.counts.total() == len(pairs)
    if len(good) == len(pairs):
        assert rows(dataset) == good
    else:
        with pytest.raises(InputError, match=r"row \d: column \S+ (is|has) "):
            rows(dataset)


VALID = "".join(json.dumps({"translation": {"en": f"word {n}", "de": f"Wört {n}"}}) + "\n" for n in range(4)).encode()


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), ending=st.sampled_from(["jsonl", "parquet"]), streaming=st.booleans())
def test_whatever_the_bytes_only_an_input_error_comes_out(folder, data, ending, streaming):
    for path in folder.iterdir():
        path.unlink()
    content = bytearray(VALID)
    if ending == "parquet":
        write_parquet(folder / "valid", translation=[{"en": "a", "de": "b"}, {"en": "c", "de": None}])
        content = bytearray((folder / "valid").read_bytes())
        (folder / "valid").unlink()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        content[start : start + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=4))
    (folder / f"train.{ending}").write_bytes(content)
    dataset = reader(folder, "en", "de", streaming=streaming)
    for skip in (False, True):
        with suppress(InputError):
            rows(dataset, BadLines(skip=skip))
