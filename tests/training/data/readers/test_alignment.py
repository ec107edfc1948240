"""How well the estimate hits, on real pairs with one fault at a random place; and that it takes any input."""

import math
from collections.abc import Callable
from functools import cache
from random import Random
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paperformer.training.data.built_in.cldr import expression_pairs
from paperformer.training.data.readers.alignment import BAND, FAULT_RATE, HIGHEST_COST, STRIDE, WINDOW, first_lost_line

LINES = 600


@cache
def bilingual_text() -> tuple[list[str], list[str]]:
    pairs = expression_pairs("en", "de", pairs=2 * LINES, validation=0, test=0)["train"]
    sources, targets = zip(*Random(1).sample(pairs, LINES), strict=True)
    return list(sources), list(targets)


def lengths(lines: list[str]) -> NDArray[np.int32]:
    return np.array([len(line) for line in lines], np.int32)


def drop(lines: list[str], index: int) -> None:
    del lines[index]


def duplicate(lines: list[str], index: int) -> None:
    lines.insert(index, lines[index])


def merge(lines: list[str], index: int) -> None:
    lines[index : index + 2] = [" ".join(lines[index : index + 2])]


def break_up(lines: list[str], index: int) -> None:
    middle = len(lines[index]) // 2
    lines[index : index + 1] = [lines[index][:middle], lines[index][middle:]]


def drop_block(lines: list[str], index: int) -> None:
    del lines[index : index + BAND]


def drop_large_block(lines: list[str], index: int) -> None:
    del lines[index : index + 100]


@pytest.mark.parametrize("fault", [drop, duplicate, merge, break_up, drop_block, drop_large_block])
def test_one_fault_is_found_within_two_lines(fault: Callable[[list[str], int], None]) -> None:
    rng = Random(2)
    errors = []
    for trial in range(20):
        sides = [side.copy() for side in bilingual_text()]
        index = rng.randrange(LINES - 100)
        fault(sides[trial % 2], index)
        errors.append(abs(first_lost_line(*map(lengths, sides)) - (index + 1)))
    # Measured: 50 of 50 merged or broken lines, 48 of 50 of each other kind, and the others within 4 lines.
    assert sum(error <= 2 for error in errors) >= (20 if fault in (merge, break_up) else 18), sorted(errors)
    assert max(errors) <= 4


def test_the_first_of_several_faults_counts() -> None:
    sources, targets = (side.copy() for side in bilingual_text())
    del sources[500], targets[300], targets[100]  # from line 301 to line 500, the sides are two lines apart
    assert abs(first_lost_line(lengths(sources), lengths(targets)) - 101) <= 2


def test_lines_in_another_order_are_not_where_track_is_lost() -> None:
    sources, targets = (side.copy() for side in bilingual_text())
    targets[100:102] = targets[101], targets[100]
    merge(targets, 400)
    assert abs(first_lost_line(lengths(sources), lengths(targets)) - 401) <= 2


@pytest.mark.parametrize("missing", [1, BAND, BAND + 1, LINES // 2])
def test_a_file_that_is_cut_off(missing: int) -> None:
    sources, targets = map(lengths, bilingual_text())
    assert abs(first_lost_line(sources, targets[:-missing]) - (LINES - missing + 1)) <= 1
    assert abs(first_lost_line(sources[:-missing], targets) - (LINES - missing + 1)) <= 1


def test_blank_lines_that_only_one_side_has() -> None:
    sources, targets = bilingual_text()
    with_blanks = [line for index, text in enumerate(sources) for line in (["", text] if index % 10 == 5 else [text])]
    assert len(with_blanks) - len(targets) > BAND
    assert abs(first_lost_line(lengths(with_blanks), lengths(targets)) - 6) <= 2


def noisy_lengths(lines: int, ratio: float) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    rng = np.random.default_rng(3)
    sources = rng.integers(1, 200, lines)
    targets = ratio * (sources + rng.normal(0, 0.1, lines) * np.sqrt(sources))
    return sources.astype(np.int32), np.maximum(targets, 1).astype(np.int32)


@pytest.mark.parametrize(
    "index", [0, 1, 2, STRIDE - 1, STRIDE, STRIDE + 1, WINDOW - 1, WINDOW, WINDOW + 1, 699, 40_000]
)
@pytest.mark.parametrize("ratio", [0.5, 3.0])
def test_every_place_and_ratio_of_lengths(index: int, ratio: float) -> None:
    sources, targets = noisy_lengths(max(700, index + 1000), ratio)
    assert abs(first_lost_line(sources, np.delete(targets, index)) - (index + 1)) <= 1
    assert abs(first_lost_line(np.delete(sources, index), targets) - (index + 1)) <= 1


def test_what_looks_lost_at_the_end_of_a_window_alone_is_left_to_the_next() -> None:
    sources, targets = noisy_lengths(900, 1.0)
    last = WINDOW - 1
    # Of the last three lines, target n fits source n - 1, and so does the first line after them.
    sources[last - 2 : last + 2] = 108, 117, 126, 126
    targets[last - 2 : last + 2] = 100, 108, 117, 126
    assert first_lost_line(sources, np.delete(targets, 600)) == 601


def test_two_lines_that_are_divided_differently_right_before_a_fault() -> None:
    sources, targets = noisy_lengths(400, 1.0)
    sources[100:103] = targets[100:103] = 40, 80, 150
    targets[100:102] = 60, 60
    assert first_lost_line(sources, np.delete(targets, 102)) == 103


def test_no_lines() -> None:
    assert first_lost_line(lengths([]), lengths(["a"])) == first_lost_line(lengths(["a"]), lengths([])) == 1


some_lengths = st.lists(st.integers(0, 1 << 20) | st.integers(0, 5), max_size=2 * BAND).map(
    lambda values: np.array(values, np.int32)
)


@settings(deadline=None)
@given(some_lengths, some_lengths)
def test_any_lengths(sources: NDArray[np.int32], targets: NDArray[np.int32]) -> None:
    assert 1 <= first_lost_line(sources, targets) <= min(len(sources), len(targets)) + 1


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 10), st.sampled_from([-2, -1, 1, 2]))
def test_no_alignment_is_better(seed: int, common: int, more: int) -> None:
    """Against a search through all alignments, with the formulas as they stand in the paper."""
    rng = np.random.default_rng(seed)
    sources, targets = (rng.integers(1, 100, common + max(sign * more, 0)) for sign in (-1, 1))
    row = first_lost_line(sources.astype(np.int32), targets.astype(np.int32)) - 1
    by_row = costs_by_first_lost_row(sources, targets)
    assert by_row[row] <= min(by_row) + 0.2  # the cost is a table of steps


def costs_by_first_lost_row(sources: NDArray[np.int64], targets: NDArray[np.int64]) -> list[float]:
    """The cost of the best of all alignments that leave the diagonal at a row, for each row."""
    n, m = len(sources), len(targets)
    common = min(n, m)
    ratio = sources[:common].sum() / targets[:common].sum()

    def squared_delta(a: NDArray[np.float64], b: NDArray[np.float64], variance: float) -> NDArray[np.float64]:
        return (a - ratio * b) ** 2 / (variance * (a + ratio * b) / 2)

    ends = (
        squared_delta(sources[:common], targets[:common], 1),
        squared_delta(sources[-common:], targets[-common:], 1),
    )
    variance = max(min(map(np.median, ends)) / NormalDist().inv_cdf(0.75) ** 2, 0.1)

    def bead(i: int, j: int, a: int, b: int) -> float:
        """The cost of the bead of lines i to i + a and j to j + b."""
        faults = {(1, 2): 0.089, (2, 1): 0.089, (2, 2): 0.011}
        prior = FAULT_RATE * faults[a, b] / (0.0099 + 0.089 + 0.011) if (a, b) in faults else 1 - FAULT_RATE
        delta = math.sqrt(squared_delta(sources[i : i + a].sum(), targets[j : j + b].sum(), variance))
        surprise = -math.log(max(2 * (1 - NormalDist().cdf(delta)), 1e-300))
        return min(surprise, HIGHEST_COST) - math.log(prior)

    def gap(lines: int) -> float:
        return -math.log(FAULT_RATE * 0.0099 / (0.0099 + 0.089 + 0.011)) - (lines - 1) * math.log(0.05)

    def leaving(i: int, j: int) -> list[float]:
        beads = [bead(i, j, a, b) + rest(i + a, j + b) for a, b in ((1, 2), (2, 1)) if i + a <= n and j + b <= m]
        beads += [gap(lines) + rest(i + lines, j) for lines in range(1, n - i + 1)]
        return beads + [gap(lines) + rest(i, j + lines) for lines in range(1, m - j + 1)]

    def staying(i: int, j: int) -> list[tuple[float, int]]:
        return [(bead(i, j, a, a), a) for a in (1, 2) if i + a <= n and j + a <= m]

    @cache
    def rest(i: int, j: int) -> float:
        if (i, j) == (n, m):
            return 0.0
        return min([cost + rest(i + a, j + a) for cost, a in staying(i, j)] + leaving(i, j))

    @cache
    def in_step(row: int) -> float:
        return min([0.0] if row == 0 else [bead(row - a, row - a, a, a) + in_step(row - a) for a in (1, 2) if row >= a])

    return [in_step(row) + min(leaving(row, row)) for row in range(common + 1)]
