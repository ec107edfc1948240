import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.data.batches.token_budget import pad, token_budget_batches

lengths_of_pairs = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=0, max_size=60)


def batches_of(lengths: list[tuple[int, int]], budget: int, seed: int) -> list[list[int]]:
    array = np.array(lengths, dtype=np.int64).reshape(-1, 2)
    return [batch.tolist() for batch in token_budget_batches(array, budget, np.random.default_rng(seed))]


@given(lengths_of_pairs, st.integers(1, 200), st.integers(0, 9))
def test_every_example_once_and_the_budget_kept(lengths: list[tuple[int, int]], budget: int, seed: int) -> None:
    batches = batches_of(lengths, budget, seed)
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    for batch in batches:
        longest = max(max(lengths[i]) for i in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget


@given(lengths_of_pairs, st.integers(1, 200), st.integers(0, 9))
def test_the_order_depends_on_the_seed_alone(lengths: list[tuple[int, int]], budget: int, seed: int) -> None:
    assert batches_of(lengths, budget, seed) == batches_of(lengths, budget, seed)


def test_another_seed_shuffles_batches_and_equally_long_examples() -> None:
    lengths = [(5, 5)] * 40
    first, second = batches_of(lengths, 20, 1), batches_of(lengths, 20, 2)
    assert first != second
    assert set(map(frozenset, first)) != set(map(frozenset, second))


def test_short_and_long_batches_are_mixed() -> None:
    longest = [max(batch) for batch in batches_of([(n, n) for n in range(1, 60)], 100, 1)]
    assert longest not in (sorted(longest), sorted(longest, reverse=True))


def padded_tokens(lengths: np.ndarray, batches: list[np.ndarray]) -> int:
    """Of both sides."""
    return sum(len(batch) * int(lengths[batch].max(axis=0).sum()) for batch in batches)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.uint32])
def test_batches_are_full_and_hold_examples_of_similar_length(dtype: type[np.integer]) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 200, (20_000, 2)).astype(dtype)  # the sides have nothing to do with each other
    batches = token_budget_batches(lengths, 1000, rng)
    # 3.4 % of padding; ordered upwards only it would be 6 %, and by the longer side and the first 14 %.
    assert padded_tokens(lengths, batches) < 1.04 * lengths.sum()
    longest = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    assert len(batches) < 1.08 * longest / 1000


def test_a_batch_may_fill_its_budget_exactly() -> None:
    assert [len(batch) for batch in batches_of([(5, 3)] * 8, 20, 0)] == [4, 4]


def test_one_column_of_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 1000)
    batches = token_budget_batches(lengths, 400, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(1000))
    assert sum(len(batch) * int(lengths[batch].max()) for batch in batches) < 1.05 * lengths.sum()


def test_examples_find_other_companions_in_another_epoch() -> None:
    lengths = np.array([(a, b) for a in range(1, 30) for b in range(1, 30)])  # no two alike
    first, second = (
        {frozenset(batch.tolist()) for batch in token_budget_batches(lengths, 200, np.random.default_rng(seed))}
        for seed in (0, 1)
    )
    assert len(first & second) < len(first) / 3


def test_empty_examples_cost_nothing() -> None:
    assert [sorted(batch) for batch in batches_of([(0, 0)] * 3, 10, 0)] == [[0, 1, 2]]


def test_pad() -> None:
    padded = pad([[5, 6], [7], []], -100)
    assert padded.tolist() == [[5, 6], [7, -100], [-100, -100]]
    assert padded.dtype == torch.int64
