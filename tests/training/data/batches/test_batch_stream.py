import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.batches import batch_stream
from paperformer.training.data.batches.batch_stream import BatchStream
from paperformer.training.data.batches.token_budget import Batch

from ....examples import examples

Shape = list[list[int]]
"""Epoch (they repeat) -> batches in each of its pools."""


class Pools:
    """Batches that are their own name: (epoch, pool, index)."""

    def __init__(self, shape: Shape):
        self.shape = shape

    def __call__(self, epoch: int, first: int) -> Iterator[Sequence[Any]]:
        sizes = self.shape[epoch % len(self.shape)]
        for pool in range(first, len(sizes)):
            yield [(epoch, pool, index) for index in range(sizes[pool])]

    def epoch(self, epoch: int) -> list[tuple[int, int, int]]:
        return [batch for pool in self(epoch, 0) for batch in pool]


def collate(batch: tuple[int, int, int]) -> Batch:
    return {"name": torch.tensor(batch)}


def stream(shape: Shape, *rank: int, num_workers: int = 0) -> BatchStream:
    return BatchStream(Pools(shape), collate, *rank, num_workers=num_workers)


def take(batches: BatchStream, count: int) -> list[tuple[int, ...]]:
    return [tuple(batch["name"].tolist()) for batch in itertools.islice(batches, count)]


def shapes(least: int) -> st.SearchStrategy[Shape]:
    """One to three epochs of at least that many batches each."""
    epoch = st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) >= least)
    return st.lists(epoch, min_size=1, max_size=3)


@st.composite
def shapes_and_processes(draw: st.DrawFn) -> tuple[Shape, int]:
    num_processes = draw(st.integers(1, 4))
    return draw(shapes(least=num_processes)), num_processes


@given(shapes_and_processes())
def test_the_processes_share_every_epoch_and_drop_only_what_is_left_over(case: tuple[Shape, int]) -> None:
    shape, num_processes = case
    wanted: list[list[tuple[int, int, int]]] = [[] for _ in range(num_processes)]
    for epoch in range(2 * len(shape)):
        batches = Pools(shape).epoch(epoch)
        steps = len(batches) // num_processes
        for rank in range(num_processes):
            wanted[rank] += batches[rank : steps * num_processes : num_processes]
    for rank in range(num_processes):
        assert take(stream(shape, rank, num_processes), len(wanted[rank])) == wanted[rank]


@given(shapes_and_processes(), st.integers(0, 40), st.data())
def test_a_resumed_stream_goes_on_where_it_was_saved(
    case: tuple[Shape, int], saved_after: int, data: st.DataObject
) -> None:
    shape, num_processes = case
    rank = data.draw(st.integers(0, num_processes - 1))
    interrupted = stream(shape, rank, num_processes)
    before = take(interrupted, saved_after)
    resumed = stream(shape, rank, num_processes)
    resumed.load_state_dict(interrupted.state_dict())
    assert before + take(resumed, 20) == take(stream(shape, rank, num_processes), saved_after + 20)


@given(shapes_and_processes(), st.integers(0, 30))
def test_all_processes_save_the_same_state(case: tuple[Shape, int], count: int) -> None:
    shape, num_processes = case
    states = []
    for rank in range(num_processes):
        one = stream(shape, rank, num_processes)
        take(one, count)
        states.append(one.state_dict())
    assert states == [states[0]] * num_processes


@settings(max_examples=examples(6))  # each starts processes
@given(shapes_and_processes(), st.integers(0, 12), st.integers(0, 2), st.integers(1, 2))
def test_workers_change_nothing_that_is_seen(
    case: tuple[Shape, int], saved_after: int, workers_before: int, workers_after: int
) -> None:
    shape, num_processes = case
    interrupted = stream(shape, 0, num_processes, num_workers=workers_before)
    before = take(interrupted, saved_after)
    resumed = stream(shape, 0, num_processes, num_workers=workers_after)
    resumed.load_state_dict(interrupted.state_dict())
    assert before + take(resumed, 10) == take(stream(shape, 0, num_processes), saved_after + 10)


def test_the_state_is_the_same_at_every_step_with_and_without_workers() -> None:
    here, ahead = stream([[3, 2]], num_workers=0), stream([[3, 2]], num_workers=2)
    for _ in zip(range(12), here, ahead, strict=False):
        assert ahead.state_dict() == here.state_dict()
    assert here.state_dict() == {"epoch": 2, "pool": 0, "index": 2}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_main_processs_random_numbers_are_left_alone(num_workers: int) -> None:
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    take(stream([[4]], num_workers=num_workers), 6)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_pools_are_made_when_they_are_wanted() -> None:
    made = []

    def pools(epoch: int, first: int) -> Iterator[Sequence[Any]]:
        for pool in Pools([[2, 2, 2]])(epoch, first):
            made.append(pool[0][1])
            yield pool

    batches = BatchStream(pools, collate)
    batches.load_state_dict({"epoch": 0, "pool": 1, "index": 1})
    take(batches, 1)
    assert made == [1]


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("shape", [[[2, 3]], [[0]], [[]]])
def test_too_few_batches_for_the_processes(shape: Shape, num_workers: int) -> None:
    with pytest.raises(InputError, match="epoch 0 has too few batches for 6 processes"):
        take(stream(shape, 0, 6, num_workers=num_workers), 1)


def test_a_resumed_epoch_may_have_nothing_left() -> None:
    batches = stream([[5]], 0, 2)
    batches.load_state_dict({"epoch": 0, "pool": 0, "index": 4})
    assert take(batches, 1) == [(1, 0, 0)]


def test_a_position_beyond_the_data() -> None:
    batches = stream([[5]])
    batches.load_state_dict({"epoch": 3, "pool": 0, "index": 6})
    with pytest.raises(InputError, match="batch 6 of pool 0 in epoch 3, which has 5"):
        take(batches, 1)


def collate_or_fail(batch: tuple[int, int, int]) -> Batch:
    if batch == (0, 0, 2):
        raise InputError("pair 7 has an id that the vocabulary lacks")
    if batch == (0, 0, 4):
        raise ZeroDivisionError("what no one thought of")
    return collate(batch)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("first", "kind", "message"),
    [(0, InputError, "^pair 7 has an id that the vocabulary lacks$"), (3, ZeroDivisionError, "what no one thought of")],
)
def test_an_error_of_collating_comes_at_its_batchs_turn(
    num_workers: int, first: int, kind: type[Exception], message: str
) -> None:
    batches = BatchStream(Pools([[9]]), collate_or_fail, num_workers=num_workers)
    batches.load_state_dict({"epoch": 0, "pool": 0, "index": first})
    with pytest.raises(kind, match=message):
        take(batches, 9)
    assert batches.state_dict()["index"] == (2 if kind is InputError else 4)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_of_the_pools_comes_at_its_batchs_turn(num_workers: int) -> None:
    def pools(epoch: int, first: int) -> Iterator[Sequence[Any]]:
        yield from Pools([[3]])(epoch, first)
        raise InputError("the file changed")

    batches = BatchStream(pools, collate, num_workers=num_workers)
    seen = []
    with pytest.raises(InputError, match="the file changed"):
        seen.extend(tuple(batch["name"].tolist()) for batch in batches)
    assert seen == Pools([[3]]).epoch(0)
    assert batches.state_dict() == {"epoch": 0, "pool": 0, "index": 3}


def test_of_two_errors_the_one_of_the_earlier_batch_comes() -> None:
    def pools(epoch: int, first: int) -> Iterator[Sequence[Any]]:
        yield from Pools([[4]])(epoch, first)
        raise InputError("the file changed")  # met while the third batch, which fails, is still being collated

    with pytest.raises(InputError, match="pair 7"):
        take(BatchStream(pools, collate_or_fail, num_workers=2), 9)


def use_until(batches: BatchStream, interruption: BaseException | None) -> list[Any]:
    """Takes a few batches; the workers that there were."""
    workers: list[Any] = []
    for _ in zip(range(3), batches, strict=False):
        workers = multiprocessing.active_children()
        if interruption is not None:
            raise interruption
    return workers


def test_workers_end_with_the_iteration() -> None:
    workers = use_until(stream([[9]], num_workers=2), None)
    assert len(workers) == 2
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_workers_end_with_an_interruption(interruption: type[BaseException]) -> None:
    with pytest.raises(interruption):
        use_until(stream([[9]], num_workers=2), interruption())
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("first", [0, 3])
def test_workers_end_with_an_error_of_their_own(first: int) -> None:
    batches = BatchStream(Pools([[9]]), collate_or_fail, num_workers=2)
    batches.load_state_dict({"epoch": 0, "pool": 0, "index": first})
    with pytest.raises((InputError, ZeroDivisionError)):
        use_until(batches, None)
    assert not multiprocessing.active_children()


SCRIPT = f"""
import os, signal, sys
import torch
# By its folder, as a package of its own: the front door would bring transformers, which takes seconds.
sys.path.insert(0, {str(Path(batch_stream.__file__).parents[3])!r})
from training.data.batches.batch_stream import BatchStream

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)  # to finish the step first, as the engine does
def pools(epoch, first):
    yield range(5)
batches = iter(BatchStream(pools, torch.tensor, num_workers=2))
next(batches), next(batches)  # of both workers: one that is being started is still of the job
print("ready", flush=True)
sys.stdin.readline()
print([int(next(batches)) for _ in range(9)])
"""  # and ends with its workers running


@pytest.mark.proof
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="Windows has no process groups to send a signal to")
def test_workers_outlive_a_signal_to_the_whole_job_but_not_the_job() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        for number in (signal.SIGINT, signal.SIGTERM):
            os.killpg(job.pid, number)
        output, _ = job.communicate("\n", timeout=60)
    assert output == "[2, 3, 4, 0, 1, 2, 3, 4, 0]\n"
    assert job.returncode == 0
