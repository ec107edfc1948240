"""Who shares a batch with whom, and when it begins: one thread that gives batches to the model.

A batch has tasks of one kind, as many as its budget of tokens allows, in turn from all requests that wait: whoever
brings a thousand sentences does not keep out who comes after with one. Of a model that is busy the next batch is
what has come meanwhile; of one that is idle a request waits for others only some milliseconds.
"""

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from functools import partial
from threading import Condition, Thread

from .engines.engine import Engine, Task
from .errors import RequestError
from .limits import Limits
from .measurements import Measurements

logger = logging.getLogger(__name__)

LONGEST_RETRY = 60
"""Seconds after which a client that was refused is asked to come again, at most."""


class WaitingRequest:
    """Tasks of a request that no batch has taken yet."""

    def __init__(self, tasks: Sequence[Task]):
        self.arrived = time.monotonic()
        self.by_kind: dict[Hashable, deque[Task]] = {}
        for task in tasks:
            self.by_kind.setdefault(task.kind, deque()).append(task)

    def take(self, kind: Hashable, most: float) -> Task | None:
        """The next task of a kind, unless it costs more than that."""
        tasks = self.by_kind.get(kind)
        if not tasks or tasks[0].cost > most:
            return None
        task = tasks.popleft()
        if not tasks:
            del self.by_kind[kind]
        return task


class Scheduler:
    """Takes tasks from any thread, and runs them in its own.

    Args:
        engine: what runs them.
        limits: of batches and of the queue.
        measurements: where batches are counted.
    """

    def __init__(self, engine: Engine, limits: Limits, measurements: Measurements):
        self.engine, self.limits, self.measurements = engine, limits, measurements
        self._requests: deque[WaitingRequest] = deque()
        self._costs: Counter[Hashable] = Counter()  # of what waits, by kind
        self._changed = Condition()
        self._is_closed = False
        self._tokens_per_second = 0.0
        self._thread = Thread(target=self._run, name="model", daemon=True)
        self._thread.start()
        measurements.waiting.set_function(lambda: len(self._requests))

    @property
    def is_alive(self) -> bool:
        """Whether the thread that runs the model is there."""
        return self._thread.is_alive()

    @property
    def has_room(self) -> bool:
        """Whether a request would be taken."""
        return not self._is_closed and len(self._requests) < self.limits.max_waiting

    def submit(self, tasks: Sequence[Task]) -> WaitingRequest:
        """Takes a request's tasks on.

        Raises:
            RequestError: with 429 if too many wait, with 503 if the server is being stopped.
        """
        request = WaitingRequest(tasks)
        with self._changed:
            if self._is_closed or not self.is_alive:
                raise RequestError(503, "the server is being stopped; ask another, or again later", retry_after=5)
            if len(self._requests) >= self.limits.max_waiting:
                seconds = self._seconds_of_work()
                raise RequestError(
                    429,
                    f"{len(self._requests):,} requests wait already; come again in {seconds} s",
                    retry_after=seconds,
                )
            self._requests.append(request)
            for task in tasks:
                self._costs[task.kind] += task.cost
            self._changed.notify_all()
        return request

    def cancel(self, request: WaitingRequest, tasks: Sequence[Task]) -> None:
        """Nobody waits for these tasks any more: those that wait leave the queue, those that run are told."""
        for task in tasks:
            task.is_cancelled = True
        with self._changed:
            if request in self._requests:
                self._requests.remove(request)
                for waiting in request.by_kind.values():
                    self._costs.subtract({waiting[0].kind: sum(task.cost for task in waiting)})

    def close(self, timeout: float) -> None:
        """Takes nothing more on, and waits until all that was taken is done, so long at most."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(timeout)

    def _seconds_of_work(self) -> int:
        if not self._tokens_per_second:
            return 1
        return max(1, min(LONGEST_RETRY, math.ceil(self._costs.total() / self._tokens_per_second)))

    def _run(self) -> None:
        while tasks := self._next_batch():
            start = time.monotonic()
            cost = sum(task.cost for task in tasks)
            self._finish(tasks)
            seconds = time.monotonic() - start
            self.measurements.batch_rows.observe(len(tasks))
            self.measurements.batch_seconds.observe(seconds)
            speed = cost / max(seconds, 1e-6)
            self._tokens_per_second = 0.8 * (self._tokens_per_second or speed) + 0.2 * speed

    def _next_batch(self) -> list[Task]:
        """Tasks of one kind; none when it is time to end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requests or self._is_closed)
                if not self._requests:
                    return []
                first = self._requests[0]
                kind = next(iter(first.by_kind))
                begins = first.arrived + self.limits.batch_wait
                self._changed.wait_for(partial(self._is_full, kind), begins - time.monotonic())
                batch = self._fill(kind)
            unwanted = [task for task in batch if not task.is_wanted]
            for task in unwanted:
                task.finish(TimeoutError("nobody waits for it any more"))
            if wanted := [task for task in batch if not task.is_done]:
                return wanted

    def _is_full(self, kind: Hashable) -> bool:
        return self._is_closed or self._costs[kind] >= self.limits.tokens_per_batch

    def _fill(self, kind: Hashable) -> list[Task]:
        """Takes what fits into one batch, a task of each request in turn. Only with the lock."""
        batch: list[Task] = []
        widest, budget = 0, self.limits.tokens_per_batch
        asked = deque(self._requests)
        while asked:
            request = asked.popleft()
            # One row more, all as wide as the widest: what the next may cost.
            most = budget / (len(batch) + 1) if batch else math.inf
            task = request.take(kind, most) if widest <= most else None
            if task is None:
                continue
            batch.append(task)
            self.measurements.queue_seconds.observe(time.monotonic() - request.arrived)
            widest = max(widest, task.cost)
            self._costs[kind] -= task.cost
            asked.append(request)
        left = [request for request in self._requests if request.by_kind]
        self._requests = deque(left[1:] + left[:1] if left and left[0] is self._requests[0] else left)
        if not self._costs[kind]:
            del self._costs[kind]
        return batch

    def _finish(self, tasks: Sequence[Task]) -> None:
        """Runs a batch. If it fails, each of its tasks is run alone, so that only the one to blame fails."""
        try:
            self.engine.run(tasks)
        except Exception as error:
            left = [task for task in tasks if not task.is_done]
            if len(tasks) == 1 or not left:
                logger.exception("the model failed at a request")
                for task in left:
                    task.finish(error)
                return
            self.measurements.isolated.inc()
            for task in left:
                if task.has_text:  # what has been sent cannot be taken back
                    task.finish(error)
                else:
                    self._finish([task])
        for task in tasks:
            task.finish(RuntimeError("the engine gave no answer") if task.is_wanted else TimeoutError())
