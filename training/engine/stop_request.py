"""SIGINT and SIGTERM as a wish to stop: the step is finished and the state saved before the program ends."""

import signal
from types import FrameType


class TrainingStopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """Training was interrupted (Ctrl-C, SIGTERM) and its state saved."""


class StopRequest:
    """Remembers SIGINT and SIGTERM instead of dying of them.

    A second SIGINT ends the program at once. Launchers pass SIGTERM on to every process, some more than once.
    """

    def __enter__(self) -> "StopRequest":
        self.requested = False
        self.previous = {number: signal.signal(number, self._remember) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
