"""From a request to the model's thread and back: the tasks of one request, and what comes of them, as it comes."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import Request

from .engines.engine import Engine, Task
from .errors import RequestError
from .measurements import Measurements
from .scheduler import Scheduler

_GONE, _LATE = object(), object()


class ClientGoneError(Exception):
    """The client has left: nobody reads an answer."""


class Exchange:
    """The tasks of a request.

    Args:
        scheduler: who runs them.
        request: who asks; when it leaves, its tasks are given up.
    """

    def __init__(self, scheduler: Scheduler, request: Request):
        self.scheduler, self.request = scheduler, request
        self.engine: Engine = scheduler.engine
        self.measurements: Measurements = scheduler.measurements
        self.timeout = scheduler.limits.timeout
        self._deadline = time.monotonic() + self.timeout
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue()
        self._tasks: list[Task] = []

    def submit(self, works: Sequence[Any]) -> None:
        """Hands work to the model's thread.

        Raises:
            RequestError: if it is more than a request may have, or there is no room for it.
        """
        costs = [self.engine.cost(work) for work in works]
        most = self.scheduler.limits.max_request_tokens
        if sum(costs) > most:
            raise RequestError(
                413,
                f"the request takes {sum(costs):,} tokens, with those of each beam and of the longest continuation; at "
                f"most {most:,} are taken at once: send several requests",
            )
        kinds = [self.engine.kind(work) for work in works]
        self._tasks = [self._make_task(i, *each) for i, each in enumerate(zip(works, kinds, costs, strict=True))]
        self._waiting = self.scheduler.submit(self._tasks) if self._tasks else None
        self.measurements.tokens.labels("in").inc(sum(len(work.ids) for work in works))

    async def events(self) -> AsyncIterator[tuple[int, bool, Any]]:
        """The number of a task, whether it is finished, and its result or a part of its text.

        Raises:
            RequestError: with 504 when it takes too long, with 500 when the model fails.
            ClientGoneError: when nobody waits any more.
        """
        open_tasks = len(self._tasks)
        watch = self._loop.create_task(self._watch_client())
        alarm = self._loop.call_later(self._deadline - time.monotonic(), self._events.put_nowait, (_LATE, None))
        try:
            while open_tasks:
                source, what = await self._events.get()
                self._check(source, what)
                number, is_finished = source
                open_tasks -= is_finished
                yield number, is_finished, what
        except (ClientGoneError, asyncio.CancelledError, GeneratorExit):  # a stream is cancelled by its response
            self.measurements.gone.inc()
            raise
        finally:
            alarm.cancel()
            watch.cancel()
            self.cancel()

    def _check(self, source: Any, what: Any) -> None:
        """Raises what an event says that has gone wrong."""
        if source is _GONE:
            raise ClientGoneError
        if source is _LATE or isinstance(what, TimeoutError):
            raise RequestError(504, f"not finished after {self.timeout:g} s; ask for less at once, or later again")
        if isinstance(what, Exception):
            raise RequestError(500, "the model failed at this request; the server's log says how") from what

    async def results(self) -> list[Any]:
        """The results of all tasks, in their order. Raises what `events` raises."""
        found: list[Any] = [None] * len(self._tasks)
        async for number, is_finished, what in self.events():
            if is_finished:
                found[number] = what
        return found

    def cancel(self) -> None:
        """Gives up what is not finished."""
        unfinished = [task for task in self._tasks if not task.is_done]
        if unfinished and self._waiting is not None:
            self.scheduler.cancel(self._waiting, unfinished)

    def _make_task(self, number: int, work: Any, kind: Any, cost: int) -> Task:
        def send(is_finished: bool, what: Any) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._events.put_nowait, ((number, is_finished), what))

        return Task(work, kind, cost, self._deadline, lambda what: send(False, what), lambda what: send(True, what))

    async def _watch_client(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
        self._events.put_nowait((_GONE, None))
