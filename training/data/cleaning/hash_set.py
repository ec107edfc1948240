"""A set of 64-bit hashes that takes and answers them in arrays."""

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

FIRST_SIZE = 1 << 12
FULL = 2 / 3
"""The table is doubled when a larger share of its slots is in use; probing becomes slow in a fuller one."""


class HashSet:
    """A set of hashes, in one array of 12 to 24 bytes a hash (36 at the moment when it grows).

    It is a hash table with linear probing (Knuth, The Art of Computer Programming 3, section 6.4, algorithm L): a
    hash lies in the first slot that was free from the one on that its leading bits name. Sorted arrays would take 8
    bytes a hash, yet the time to search them grows with the set: at ten million hashes, they are four times as slow.
    """

    def __init__(self) -> None:
        self._slots = np.zeros(FIRST_SIZE, np.uint64)  # a power of two in size; 0 is a free slot
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, hashes: Hashes) -> Mask:
        """Adds N hashes. Returns (N,), true where a hash is neither in the set yet nor earlier among these."""
        distinct, first = np.unique(_not_zero(hashes), return_index=True)
        self._make_room(len(distinct))
        is_new = np.zeros(len(hashes), np.bool_)
        is_new[first] = self._insert(distinct)
        self._size += int(np.count_nonzero(is_new))
        return is_new

    def contains(self, hashes: Hashes) -> Mask:
        """For N hashes, (N,), true where one is in the set."""
        hashes = _not_zero(hashes)
        found = np.zeros(len(hashes), np.bool_)
        pending, slot = np.arange(len(hashes)), self._home(hashes)
        while len(pending) > 0:
            stored, sought = self._slots[slot], hashes[pending]
            found[pending] = stored == sought
            goes_on = (stored != sought) & (stored != 0)
            pending, slot = pending[goes_on], self._next(slot[goes_on])
        return found

    def _insert(self, hashes: Hashes) -> Mask:
        """Puts in hashes that are distinct, for which there is room; says which were not there."""
        is_new = np.zeros(len(hashes), np.bool_)
        pending, slot = np.arange(len(hashes)), self._home(hashes)
        while len(pending) > 0:
            mine = hashes[pending]
            was_free = self._slots[slot] == 0
            self._slots[slot[was_free]] = mine[was_free]  # of several that want a slot, the last gets it
            is_in = self._slots[slot] == mine
            is_new[pending] = was_free & is_in
            pending, slot = pending[~is_in], self._next(slot[~is_in])
        return is_new

    def _make_room(self, additional: int) -> None:
        size = len(self._slots)
        while self._size + additional > FULL * size:
            size *= 2
        if size > len(self._slots):
            old, self._slots = self._slots, np.zeros(size, np.uint64)
            for start in range(0, len(old), FIRST_SIZE):
                part = old[start : start + FIRST_SIZE]
                self._insert(part[part != 0])

    def _home(self, hashes: Hashes) -> npt.NDArray[np.intp]:
        bits = len(self._slots).bit_length() - 1
        return (hashes >> np.uint64(64 - bits)).astype(np.intp)

    def _next(self, slot: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        return (slot + 1) & (len(self._slots) - 1)


def _not_zero(hashes: Hashes) -> Hashes:
    """The hashes with 1 for 0, which means a free slot."""
    return np.maximum(hashes, np.uint64(1))
