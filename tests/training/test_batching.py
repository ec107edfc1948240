import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.batching import BatchStream, pad, token_budget_batches

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


def test_batches_hold_examples_of_similar_length() -> None:
    rng = np.random.default_rng(0)
    lengths = [(int(n), int(n)) for n in rng.integers(1, 100, 1000)]
    batches = batches_of(lengths, 400, 0)
    padded = sum(len(batch) * max(lengths[i][0] for i in batch) for batch in batches)
    assert padded < 1.05 * sum(n for n, _ in lengths)
    assert len(batches) < 1.15 * padded / 400  # and are full


def test_pad() -> None:
    padded = pad([[5, 6], [7], []], -100)
    assert padded.tolist() == [[5, 6], [7, -100], [-100, -100]]
    assert padded.dtype == torch.int64


def stream(process_index: int = 0, num_processes: int = 1) -> BatchStream:
    """Epoch e has 5 batches, e0 to e4, in an order of its own."""

    def epoch_batches(epoch: int) -> list[int]:
        return [10 * epoch + int(i) for i in np.random.default_rng(epoch).permutation(5)]

    return BatchStream(epoch_batches, lambda batch: {"batch": torch.tensor(batch)}, process_index, num_processes)


def take(batches: BatchStream, count: int) -> list[int]:
    return [int(batch["batch"]) for batch in itertools.islice(batches, count)]


def test_a_stream_goes_through_epoch_after_epoch() -> None:
    taken = take(stream(), 15)
    for epoch in range(3):
        assert sorted(taken[5 * epoch : 5 * epoch + 5]) == [10 * epoch + i for i in range(5)]


@given(st.integers(0, 17))
def test_a_resumed_stream_goes_on_where_it_was_saved(saved_after: int) -> None:
    interrupted = stream()
    before = take(interrupted, saved_after)
    resumed = stream()
    resumed.load_state_dict(interrupted.state_dict())
    assert before + take(resumed, 20 - saved_after) == take(stream(), 20)


def test_processes_share_an_epoch_and_take_equally_many_batches() -> None:
    whole, first, second = take(stream(), 5), take(stream(0, 2), 2), take(stream(1, 2), 2)
    assert [first[0], second[0], first[1], second[1]] == whole[:4]  # the odd one out is left out
    assert take(stream(0, 2), 3)[2] // 10 == take(stream(1, 2), 3)[2] // 10 == 1  # both are in the next epoch


def test_too_few_batches_for_the_processes() -> None:
    with pytest.raises(ValueError, match="5 batches an epoch are too few for 6 processes"):
        take(stream(0, 6), 1)
