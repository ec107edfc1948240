"""Work on texts by several processes, each with the model, its share of the processors, or a GPU of its own."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from threading import Thread
from types import TracebackType
from typing import Any, Self

from ..decoding.translator import Translator
from ..training.console.input_error import InputError
from ..training.console.progress import ProgressBar, is_first_process
from ..translation.cutting import Notes
from .translators import Work

SHARES_OF_A_PROCESS = 4
"""More than one, so that no process is idle for long while another works on the last."""

_load: Callable[[], Translator]
"""Of a worker process."""


class ModelProcesses:
    """Processes that each hold a model, or an ensemble, and work on shares of texts.

    Args:
        load: loads the model; can be sent to another process.
        processes: how many.
        doing: what they do, for people: translate, score.
    """

    def __init__(self, load: Callable[[], Translator], processes: int, *, doing: str = "translate"):
        self.processes, self.doing = processes, doing
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        self._pool = ProcessPoolExecutor(processes, context, _begin, (load, processes, context.Value("i", 0)))

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, failure, traceback)

    def do(self, work: Work, texts: Sequence[str], note: Notes, *, show_progress: bool = True) -> list[Any]:
        """What the work makes of each text, in their order.

        Args:
            note: told of texts by their places from 0.

        Raises:
            InputError: if a model cannot be loaded, or the system ends a process.
        """
        # Texts of similar length together, the longest first: what takes longest does not begin last.
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        size = max(1, -(-len(order) // (self.processes * SHARES_OF_A_PROCESS)))
        shares = [order[start : start + size] for start in range(0, len(order), size)]
        made: list[Any] = [None] * len(texts)
        described, is_shown = f"{self.doing}, {self.processes} processes", show_progress and is_first_process()
        try:
            with ProgressBar(total=len(texts), desc=described, unit=" sent", disable=not is_shown) as bar:
                futures = [self._pool.submit(_do, work, [texts[index] for index in share]) for share in shares]
                for share, future in zip(shares, futures, strict=True):
                    outputs, notes = future.result()
                    for index, output in zip(share, outputs, strict=True):
                        made[index] = output
                    for place, what in notes:
                        note(share[place], what)
                    bar.update(len(share))
        except BrokenProcessPool as error:
            raise InputError(
                f"one of {self.processes} processes that {self.doing} has ended before its time, perhaps for want of "
                "memory; give fewer processes"
            ) from error
        return made


def _begin(load: Callable[[], Translator], processes: int, number: Any) -> None:
    """Gives a worker process its device and its threads."""
    global _load
    with number.get_lock():
        own = number.value
        number.value += 1
    Thread(target=_end_with_parent, daemon=True).start()
    os.environ["RANK"] = str(own + 1)  # only the first process of a job speaks, and that is the one that began
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(own % torch.cuda.device_count())
    torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    # Not loaded here: what fails with the first share is told as what it is.
    _load = cache(load)


def _end_with_parent() -> None:
    """Ends a worker whose parent was killed, and would otherwise wait for work for ever."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _do(work: Work, texts: Sequence[str]) -> tuple[list[Any], list[tuple[int, str]]]:
    notes: list[tuple[int, str]] = []
    return work(_load(), texts, lambda *note: notes.append(note)), notes
