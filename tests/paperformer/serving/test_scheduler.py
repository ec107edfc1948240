"""Which requests share a batch, and that none of them suffers from another."""

import time
from collections.abc import Callable, Iterator, Sequence
from threading import Event
from typing import Any

import pytest

from paperformer.serving.engines.engine import Task
from paperformer.serving.errors import RequestError
from paperformer.serving.limits import Limits
from paperformer.serving.measurements import Measurements
from paperformer.serving.scheduler import Scheduler


class Recorder:
    """An engine that writes down its batches. A work is (kind, cost); "bad" fails, and takes its batch along."""

    task, longest = "test", 100

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.begun, self.may_go_on = Event(), Event()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return []

    def kind(self, work: Any) -> Any:
        return work[0]

    def cost(self, work: Any) -> int:
        return work[1]

    def run(self, tasks: Sequence[Task]) -> None:
        self.begun.set()
        assert self.may_go_on.wait(20)
        self.batches.append([task.work for task in tasks])
        if any("bad" in task.work for task in tasks):
            raise ValueError("bad work")
        for task in tasks:
            if "early" in task.work:
                task.show("some text")
        if any("fails later" in task.work for task in tasks):
            raise ValueError("bad luck")
        for task in tasks:
            task.finish(("done", task.work))


@pytest.fixture
def engine() -> Recorder:
    return Recorder()


@pytest.fixture
def make(engine: Recorder) -> Iterator[Callable[..., Scheduler]]:
    """A scheduler whose model is busy with ("busy", 1) until `engine.may_go_on` is set."""
    made: list[Scheduler] = []

    def make(**limits: Any) -> Scheduler:
        scheduler = Scheduler(engine, Limits(**{"tokens_per_batch": 10, "batch_wait": 0.0, **limits}), Measurements())
        made.append(scheduler)
        submit(scheduler, ("busy", 1))
        assert engine.begun.wait(20)
        return scheduler

    yield make
    engine.may_go_on.set()
    for scheduler in made:
        scheduler.close(20)
        assert not scheduler.is_alive


def submit(scheduler: Scheduler, *works: Any, seconds: float = 60) -> tuple[Any, list[Task], list[Any]]:
    results: list[Any] = [None] * len(works)
    tasks = [
        Task(
            work,
            work[0],
            work[1],
            time.monotonic() + seconds,
            lambda text: None,
            lambda what, i=i: put(results, i, what),
        )
        for i, work in enumerate(works)
    ]
    return scheduler.submit(tasks), tasks, results


def put(results: list[Any], place: int, what: Any) -> None:
    assert results[place] is None  # each task ends once
    results[place] = what


def finish(engine: Recorder, scheduler: Scheduler) -> list[list[Any]]:
    """Lets the model go on, and returns the batches behind the first."""
    engine.may_go_on.set()
    scheduler.close(20)
    return engine.batches[1:]


def test_what_waits_shares_a_batch_within_the_budget(engine: Recorder, make: Callable[..., Scheduler]) -> None:
    scheduler = make()
    results = [submit(scheduler, ("a", 3), ("a", 3))[2] for _ in range(4)]
    assert [len(batch) for batch in finish(engine, scheduler)] == [3, 3, 2]  # three rows of 3 tokens are not over 10
    assert all(what == ("done", ("a", 3)) for result in results for what in result)


def test_the_budget_counts_padding(engine: Recorder, make: Callable[..., Scheduler]) -> None:
    scheduler = make()
    for cost in (1, 6, 1, 1, 50):
        submit(scheduler, ("a", cost))
    # A second row beside one of 6 would make 12 of it; what is over the budget by itself comes alone.
    assert sorted(len(batch) * max(cost for _, cost in batch) for batch in finish(engine, scheduler)) == [3, 6, 50]


def test_only_tasks_of_a_kind_share_a_batch(engine: Recorder, make: Callable[..., Scheduler]) -> None:
    scheduler = make()
    for kind in "abab":
        submit(scheduler, (kind, 1))
    submit(scheduler, ("a", 1), ("b", 1))
    assert finish(engine, scheduler) == [[("a", 1)] * 3, [("b", 1)] * 3]


def test_a_large_request_lets_a_small_one_in(engine: Recorder, make: Callable[..., Scheduler]) -> None:
    scheduler = make()
    submit(scheduler, *[("a", 1, "large")] * 100)
    submit(scheduler, ("a", 1, "small"))
    submit(scheduler, ("b", 1, "other"))
    batches = finish(engine, scheduler)
    assert ("a", 1, "small") in batches[0]
    assert ("b", 1, "other") in batches[1] + batches[2]


def test_only_the_task_to_blame_fails(engine: Recorder, make: Callable[..., Scheduler]) -> None:
    scheduler = make()
    results = [submit(scheduler, work)[2] for work in (("a", 1), ("a", 1, "bad"), ("a", 1))]
    finish(engine, scheduler)
    good, bad, other = (result[0] for result in results)
    assert good == other == ("done", ("a", 1))
    assert isinstance(bad, ValueError)
    assert scheduler.measurements.text().count(b"paperformer_failed_batches_total 1.0") == 1


def test_what_was_shown_is_not_shown_again(engine: Recorder, make: Callable[..., Scheduler]) -> None:
    scheduler = make()
    shown, hidden = (submit(scheduler, ("a", 1, *words))[2] for words in (["early"], []))
    blamed = submit(scheduler, ("a", 1, "fails later"))[2]
    finish(engine, scheduler)
    assert isinstance(shown[0], ValueError)
    assert isinstance(blamed[0], ValueError)
    assert hidden == [("done", ("a", 1))]


def test_too_many_requests_are_told_when_to_come_again(engine: Recorder, make: Callable[..., Scheduler]) -> None:
    scheduler = make(max_waiting=2)
    assert scheduler.has_room
    first, tasks, _ = submit(scheduler, ("a", 1))
    submit(scheduler, ("a", 1))
    assert not scheduler.has_room
    with pytest.raises(RequestError, match="2 requests wait already; come again in 1 s") as refused:
        submit(scheduler, ("a", 1))
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    scheduler.cancel(first, tasks)  # its client has left: there is a place again
    submit(scheduler, ("b", 1))
    assert finish(engine, scheduler) == [[("a", 1)], [("b", 1)]]


def test_nothing_is_computed_for_nobody(engine: Recorder, make: Callable[..., Scheduler]) -> None:
    scheduler = make()
    _, _, late = submit(scheduler, ("a", 1, "late"), seconds=-1)
    submit(scheduler, ("a", 1))
    assert finish(engine, scheduler) == [[("a", 1)]]
    assert isinstance(late[0], TimeoutError)


def test_closing_finishes_what_was_taken_and_takes_no_more(engine: Recorder, make: Callable[..., Scheduler]) -> None:
    scheduler = make()
    _, _, result = submit(scheduler, ("a", 1))
    scheduler.close(0.01)
    assert scheduler.is_alive
    with pytest.raises(RequestError, match="is being stopped") as refused:
        submit(scheduler, ("a", 1))
    assert refused.value.status == 503
    finish(engine, scheduler)
    assert result == [("done", ("a", 1))]


def test_an_idle_model_waits_for_others_no_longer_than_it_may(engine: Recorder) -> None:
    engine.may_go_on.set()
    scheduler = Scheduler(engine, Limits(tokens_per_batch=2, batch_wait=30), Measurements())
    for _ in range(2):  # together they fill the batch, so that nobody waits for 30 seconds
        submit(scheduler, ("a", 1))
    assert engine.begun.wait(20)
    scheduler.close(20)
    assert engine.batches == [[("a", 1)] * 2]
