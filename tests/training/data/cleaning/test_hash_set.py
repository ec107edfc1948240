import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.data.cleaning.hash_set import FIRST_SIZE, FULL, Hashes, HashSet

# Few values, the mark of a free slot among them, values whose home is the last slot, and any others.
hashes = st.one_of(st.integers(0, 3), st.integers(2**64 - 3, 2**64 - 1), st.integers(0, 2**64 - 1))
batches = st.lists(st.lists(hashes, max_size=30), max_size=8)


def array(values: list[int]) -> Hashes:
    return np.array(values, np.uint64)


def first_occurrences(values: list[int], seen: set[int]) -> list[bool]:
    """What `add` must say, with a Python set; 0 and 1 are one hash."""
    result = []
    for value in values:
        result.append(max(value, 1) not in seen)
        seen.add(max(value, 1))
    return result


@given(batches)
def test_a_python_set_says_the_same(values: list[list[int]]) -> None:
    ours, theirs = HashSet(), set[int]()
    for batch in values:
        assert ours.contains(array(batch)).tolist() == [max(value, 1) in theirs for value in batch]
        assert ours.add(array(batch)).tolist() == first_occurrences(batch, theirs)
        assert len(ours) == len(theirs)


def test_it_grows_and_forgets_nothing() -> None:
    rng = np.random.default_rng(1)
    added = rng.integers(0, 2**64, 20 * FIRST_SIZE, np.uint64)
    hash_set = HashSet()
    for batch in np.array_split(added, 7):
        assert hash_set.add(batch).all()
    assert len(hash_set) == len(added)
    assert hash_set.contains(added).all()
    assert not hash_set.add(added).any()
    assert not hash_set.contains(rng.integers(0, 2**64, 10_000, np.uint64)).any()


def test_it_fills_up_to_the_last_slot_with_hashes_of_one_home() -> None:
    count = int(FIRST_SIZE * FULL)
    same_home = np.uint64(2**64 - 1) - np.arange(count, dtype=np.uint64)
    hash_set = HashSet()
    assert hash_set.add(same_home).all()
    assert hash_set.contains(same_home).all()
    assert not hash_set.contains(same_home - np.uint64(count)).any()


def test_memory_is_at_most_24_bytes_a_hash() -> None:
    hash_set = HashSet()
    for batch in np.array_split(np.random.default_rng(1).integers(0, 2**64, 300_000, np.uint64), 30):
        hash_set.add(batch)
        assert hash_set._slots.nbytes <= max(24 * len(hash_set), 8 * FIRST_SIZE)
