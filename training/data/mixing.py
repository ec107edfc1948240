"""Several sources in one corpus: how much of each an epoch holds.

A source's share is proportional to its weight and to its size to the power of 1/T. T = 1 takes sources as large as they
are; a higher temperature T gives small ones more than that, up to equal shares (Arivazhagan et al. 2019, arXiv
1907.05019; multilingual BERT was trained with an exponent of 0.7).
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..console.input_error import InputError

ROWS_A_DRAW = 10_000


def shares(sizes: Sequence[int], weights: Sequence[float], temperature: float) -> NDArray[np.float64]:
    """The share of each source, proportional to weight x size^(1/temperature).

    Raises:
        InputError: if a size, a weight or the temperature is not a positive number, or if weights are missing.
    """
    if len(weights) != len(sizes):
        raise InputError(f"there are {len(weights)} weights for {len(sizes)} sources; each source needs one")
    if not 0 < temperature < np.inf:
        raise InputError(f"the temperature is {temperature}; it must be a positive number")
    for number, (size, weight) in enumerate(zip(sizes, weights, strict=True), 1):
        if size <= 0:
            raise InputError(f"source {number} of {len(sizes)} has no rows to train on; take it out")
        if not 0 < weight < np.inf:
            raise InputError(f"the weight of source {number} of {len(sizes)} is {weight}; it must be a positive number")
    logarithms = np.log(np.asarray(weights, np.float64)) + np.log(np.asarray(sizes, np.float64)) / temperature
    parts = np.exp(logarithms - logarithms.max())  # the largest is 1: a small temperature does not overflow
    return parts / parts.sum()


def mixed_epoch(
    sizes: Sequence[int], weights: Sequence[float], temperature: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The rows of an epoch that is as long as all sources together and holds each according to its share.

    A source that is due more rows than it has is taken whole as often as that fits; for the rest, as for a source that
    is due fewer, rows are drawn without replacement. With equal weights and a temperature of 1 every row occurs once.

    Args:
        sizes: how many rows each source has. Rows are numbered through: the second source's come after the first's.
        weights: of each source.
        temperature: see `shares`.
        rng: draws the rows.

    Returns:
        Row numbers, (sum of sizes,), source after source: shuffling is left to what makes batches of them.

    Raises:
        InputError: as `shares`.
    """
    counts = _apportion(shares(sizes, weights, temperature), sum(sizes))
    rows = []
    first = 0
    for size, count in zip(sizes, counts.tolist(), strict=True):
        times, rest = divmod(count, size)
        rows += [np.arange(first, first + size)] * times
        rows.append(first + rng.choice(size, rest, replace=False, shuffle=False))
        first += size
    return np.concatenate(rows)


def _apportion(parts: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole numbers in proportion to the parts, which sum to 1, by the largest remainders."""
    exact = parts * total
    counts = np.floor(exact).astype(np.int64)
    missing = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts


def interleave(
    sources: Sequence[Callable[[], Iterator[pa.RecordBatch]]], parts: Sequence[float], rng: np.random.Generator
) -> Iterator[pa.RecordBatch]:
    """Mixes streams whose sizes are not known: each row's source is drawn by the shares.

    A source that ends begins again, until each has been read to its end at least once; so nothing of a large source is
    left out, whatever its share. Memory holds one chunk of each source. Of a document of several rows between which
    another source comes, the rest becomes a document of its own.

    Args:
        sources: start reading a source from its beginning.
        parts: the share of each, any positive numbers.
        rng: draws the sources.

    Yields:
        Slices of the sources' chunks, none empty; within every `ROWS_A_DRAW` rows in the order of the sources.

    Raises:
        InputError: when it is met, if a share is not a positive number or a source has no rows.
    """
    probabilities = shares([1] * len(sources), parts, 1.0)
    readers = [_again_and_again(start, f"source {number} of {len(sources)}") for number, start in enumerate(sources, 1)]
    rests: list[pa.RecordBatch | None] = [None] * len(sources)  # of the chunks at hand
    unread = set(range(len(sources)))
    last = None
    while True:
        for index, wanted in enumerate(rng.multinomial(ROWS_A_DRAW, probabilities).tolist()):
            while wanted > 0:
                chunk = rests[index] or next(readers[index])
                if chunk is None:
                    unread.discard(index)
                    if not unread:
                        return
                else:
                    taken = chunk.slice(0, wanted)
                    rests[index] = chunk.slice(taken.num_rows)
                    wanted -= taken.num_rows
                    yield taken if index == last else _beginning_a_document(taken)
                    last = index


def _again_and_again(start: Callable[[], Iterator[pa.RecordBatch]], name: str) -> Iterator[pa.RecordBatch | None]:
    """A source's chunks that have rows, without end; None after each time that it has been read through."""
    while True:
        is_empty = True
        for chunk in start():
            if chunk.num_rows > 0:
                is_empty = False
                yield chunk
        if is_empty:
            raise InputError(f"{name} has no rows to train on; take it out")
        yield None


def _beginning_a_document(chunk: pa.RecordBatch) -> pa.RecordBatch:
    """The chunk, whose first row, if it is running text, continues nothing."""
    if "begins" not in chunk.schema.names or chunk.column("begins")[0].as_py():
        return chunk
    begins = pa.concat_arrays([pa.array([True]), chunk.column("begins").slice(1)])
    return chunk.set_column(chunk.schema.get_field_index("begins"), "begins", begins)
