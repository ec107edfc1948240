import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.mixing import interleave, mixed_epoch, shares
from paperformer.training.data.text.chunks import TEXT_SCHEMA, text_chunk

sizes_of_sources = st.lists(st.integers(1, 300), min_size=1, max_size=5)


def rows_by_source(rows: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    ends = np.cumsum(sizes)
    return [rows[(rows >= end - size) & (rows < end)] for size, end in zip(sizes, ends, strict=True)]


def test_a_temperature_of_one_takes_sources_as_large_as_they_are() -> None:
    np.testing.assert_allclose(shares([100, 300, 600], [1, 1, 1], 1.0), [0.1, 0.3, 0.6])


def test_weights_multiply() -> None:
    np.testing.assert_allclose(shares([100, 300], [6, 1], 1.0), [2 / 3, 1 / 3])


def test_the_temperature_is_the_root_that_sizes_are_taken_by() -> None:
    np.testing.assert_allclose(shares([100, 900], [1, 1], 2.0), [0.25, 0.75])
    np.testing.assert_allclose(shares([100, 900], [1, 1], 1e9), [0.5, 0.5])
    np.testing.assert_allclose(shares([100, 900], [1, 1], 1e-3), [0, 1])


@pytest.mark.parametrize(
    ("sizes", "weights", "temperature", "message"),
    [
        ([5, 0], [1, 1], 1.0, "source 2 of 2 has no rows to train on"),
        ([5, 5], [1, -0.5], 1.0, "the weight of source 2 of 2 is -0.5; it must be a positive number"),
        ([5, 5], [1, float("nan")], 1.0, "the weight of source 2 of 2 is nan"),
        ([5, 5], [1, 1], 0.0, "the temperature is 0.0; it must be"),
        ([5, 5], [1, 1], float("inf"), "the temperature is inf"),
        ([5, 5], [1], 1.0, "1 weights for 2 sources"),
    ],
)
def test_what_is_no_share(sizes: list[int], weights: list[float], temperature: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mixed_epoch(sizes, weights, temperature, np.random.default_rng(0))


@given(sizes_of_sources, st.integers(0, 9))
def test_equal_weights_without_temperature_take_every_row_once(sizes: list[int], seed: int) -> None:
    rows = mixed_epoch(sizes, [1.7] * len(sizes), 1.0, np.random.default_rng(seed))
    assert sorted(rows) == list(range(sum(sizes)))


@given(sizes_of_sources, st.data())
def test_an_epoch_is_as_long_as_all_sources_and_holds_each_by_its_share(sizes: list[int], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.floats(0.01, 100), min_size=len(sizes), max_size=len(sizes)))
    temperature = data.draw(st.floats(0.2, 20))
    rows = mixed_epoch(sizes, weights, temperature, np.random.default_rng(0))
    assert rows.dtype == np.int64
    assert len(rows) == sum(sizes)
    exact = shares(sizes, weights, temperature) * sum(sizes)
    for size, wanted, drawn in zip(sizes, exact, rows_by_source(rows, sizes), strict=True):
        assert abs(len(drawn) - wanted) < 1
        times = Counter(drawn.tolist())
        least = len(drawn) // size
        assert {times[row] for row in times} <= {least, least + 1}
        assert len(times) == min(size, len(drawn))  # nothing twice before everything once


def test_the_rows_drawn_depend_on_the_generator_alone() -> None:
    first, again, second = (mixed_epoch([50, 150], [1, 1], 5.0, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert set(first.tolist()) != set(second.tolist())


def source(name: str, *sizes_of_chunks: int) -> Callable[[], Iterator[pa.RecordBatch]]:
    """Rows name0, name1 and so on."""

    def start() -> Iterator[pa.RecordBatch]:
        numbers = itertools.count()
        for size in sizes_of_chunks:
            yield pa.record_batch([pa.array([f"{name}{next(numbers)}" for _ in range(size)], pa.string())], ["text"])

    return start


def interleaved(
    sources: list[Callable[[], Iterator[pa.RecordBatch]]], parts: list[float], seed: int = 0
) -> dict[str, list[int]]:
    """The rows drawn of each source, in order."""
    rows: dict[str, list[int]] = {}
    for chunk in interleave(sources, parts, np.random.default_rng(seed)):
        assert chunk.num_rows > 0
        for text in chunk.column("text").to_pylist():
            rows.setdefault(text[0], []).append(int(text[1:]))
    return rows


def test_a_single_stream_passes_through() -> None:
    assert interleaved([source("a", 3, 0, 12_000, 5)], [1.0]) == {"a": list(range(12_008))}


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.lists(st.integers(0, 30), min_size=1, max_size=4))
def test_every_stream_is_read_to_its_end_and_begins_again(a: list[int], b: list[int]) -> None:
    a, b = [*a, 1], [*b, 1]  # not empty
    rows = interleaved([source("a", *a), source("b", *b)], [1, 3])
    for name, size in {"a": sum(a), "b": sum(b)}.items():
        assert len(rows[name]) >= size
        assert rows[name] == [index % size for index in range(len(rows[name]))]


def test_rows_come_by_the_shares_whatever_the_chunks() -> None:
    rows = interleaved([source("a", *[1000] * 40), source("b", *[7] * 100), source("c", 3)], [1, 2, 1])
    total = sum(map(len, rows.values()))
    assert len(rows["a"]) == 40_000  # the last to end, and the end of all
    assert 160_000 <= total <= 165_000
    assert len(rows["b"]) / total == pytest.approx(0.5, abs=0.02)


def test_interleaving_depends_on_the_generator_alone() -> None:
    sources = [source("a", 30_000), source("b", 30_000)]
    assert interleaved(sources, [1, 1], 5) == interleaved(sources, [1, 1], 5)
    lengths = {tuple(map(len, interleaved(sources, [1, 1], seed).values())) for seed in range(5)}
    assert len(lengths) > 1


@pytest.mark.parametrize("seed", range(3))
def test_no_row_continues_a_document_of_another_source(seed: int) -> None:
    def document(name: str) -> Iterator[pa.RecordBatch]:
        for first in range(0, 30_000, 3_000):
            yield text_chunk(
                [f"{name}{first + row}" for row in range(3_000)], [first + row == 0 for row in range(3_000)]
            )

    chunks = interleave([partial(document, "a"), partial(document, "b")], [1, 1], np.random.default_rng(seed))
    previous, changes = "", 0
    table = pa.Table.from_batches(chunks, TEXT_SCHEMA).to_pydict()
    for text, begins in zip(table["text"], table["begins"], strict=True):
        is_other = text[0] != previous
        assert begins == (is_other or text[1:] == "0")
        previous, changes = text[0], changes + is_other
    assert changes > 5


@pytest.mark.parametrize("chunks", [(), (0, 0)])
def test_an_empty_stream(chunks: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="source 2 of 2 has no rows to train on"):
        interleaved([source("a", 20), source("b", *chunks)], [1, 1])


def test_a_share_of_nothing() -> None:
    with pytest.raises(InputError, match="the weight of source 2 of 2 is 0"):
        interleaved([source("a", 20), source("b", 20)], [1, 0])
