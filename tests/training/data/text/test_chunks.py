from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.data.text import chunks as chunks_module
from paperformer.training.data.text.chunks import (
    PAIR_SCHEMA,
    TEXT_SCHEMA,
    chunks_of_pieces,
    chunks_of_rows,
    even_chunks,
    pair_chunk,
    tables_of_rows,
    text_chunk,
)


@pytest.fixture
def tiny_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "ROWS_A_CHUNK", 3)
    monkeypatch.setattr(chunks_module, "CHARACTERS_A_CHUNK", 10)


def rows_of(chunks: Iterator[pa.RecordBatch], schema: pa.Schema) -> list[list[tuple[object, ...]]]:
    chunks = list(chunks)
    assert all(chunk.schema.equals(schema) for chunk in chunks)
    return [list(zip(*chunk.to_pydict().values(), strict=True)) for chunk in chunks]


def test_one_chunk() -> None:
    assert pair_chunk(["a"], ["b"]).to_pydict() == {"source": ["a"], "target": ["b"]}
    assert text_chunk(["a", "b"]).to_pydict() == {"text": ["a", "b"], "begins": [True, True]}
    assert text_chunk(["a", "b"], [True, False]).to_pydict() == {"text": ["a", "b"], "begins": [True, False]}


def test_text_of_which_arrow_has_no_form_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        pair_chunk(["\ud800"], ["b"])


@pytest.mark.usefixtures("tiny_chunks")
def test_chunks_end_with_a_number_of_rows_or_of_characters() -> None:
    pairs = [("a", "b")] * 4 + [("long", "longer"), ("c", "d"), ("e", "f")]
    assert rows_of(chunks_of_rows(pairs), PAIR_SCHEMA) == [pairs[:3], pairs[3:5], pairs[5:]]
    texts = [("a",), ("0123456789",), ("b",)]
    expected = [[("a", True), ("0123456789", True)], [("b", True)]]
    assert rows_of(chunks_of_rows(texts), TEXT_SCHEMA) == expected
    pieces = [("a", True), ("b", False), ("0123456789", True), ("c", False)]
    assert rows_of(chunks_of_pieces(pieces), TEXT_SCHEMA) == [pieces[:3], pieces[3:]]
    assert list(chunks_of_rows([])) == list(chunks_of_pieces([])) == []


@pytest.mark.usefixtures("tiny_chunks")
def test_a_chunk_comes_before_the_next_row_is_read() -> None:
    def rows() -> Iterator[tuple[str, ...]]:
        yield ("0123456789",)
        raise AssertionError("read too far")

    assert len(next(chunks_of_rows(rows()))) == 1


@given(st.lists(st.integers(0, 7), max_size=8), st.integers(1, 6))
def test_tables_have_as_many_rows_as_asked(sizes: list[int], rows: int) -> None:
    texts = [str(number) for number in range(sum(sizes))]
    rest = iter(texts)
    chunks = iter([text_chunk([next(rest) for _ in range(size)]) for size in sizes])
    tables = list(tables_of_rows(chunks, rows))
    assert [text for table in tables for text in table["text"].to_pylist()] == texts
    assert all(len(table) == rows for table in tables[:-1])
    assert all(0 < len(table) <= rows for table in tables)


def written(chunks: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TEXT_SCHEMA) as writer:
        for chunk in even_chunks(chunks):
            writer.write_batch(chunk)
    return bytes(sink.getvalue())


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "é", "long text"]), st.booleans()), max_size=30),
    st.lists(st.integers(0, 12), max_size=6),
)
def test_even_chunks_are_the_same_to_the_byte_however_they_were_cut(
    rows: list[tuple[str, bool]], sizes: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks_module, "ROWS_A_CHUNK", 5)
        patch.setattr(chunks_module, "CHARACTERS_A_CHUNK", 20)
        whole = text_chunk([text for text, _ in rows], [begins for _, begins in rows])
        parts, start = [], 0
        for size in sizes:
            parts.append(whole.slice(start, size))
            start = min(start + size, len(whole))
        parts.append(text_chunk(*whole.slice(start).to_pydict().values()))  # no slice
        chunks = list(even_chunks(parts))
        assert [row for chunk in chunks for row in chunk.to_pylist()] == whole.to_pylist()
        for chunk, following in pairwise([*chunks, None]):
            characters = sum(len(text.encode()) for text in chunk["text"].to_pylist())
            assert len(chunk) <= 5
            assert characters < 20 + 9
            assert following is None or len(chunk) == 5 or characters >= 20
        assert written(parts) == written([whole])
