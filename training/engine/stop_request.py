"""SIGINT and SIGTERM as a wish to stop: the step is finished and the state saved before the program ends."""

import signal
import threading
from types import FrameType


class TrainingStopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """Training was interrupted (Ctrl-C, SIGTERM) and its state saved."""


class StopRequest:
    """Remembers SIGINT and SIGTERM instead of dying of them.

    A second SIGINT ends the program at once. Launchers pass SIGTERM on to every process, some more than once. A thread
    that is not the main one gets no signals.
    """

    def __enter__(self) -> "StopRequest":
        self.requested = False
        is_main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
        self.previous = {number: signal.signal(number, self._remember) for number in numbers}
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
