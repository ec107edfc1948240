"""What the server needs of whatever computes, be it torch or another.

An engine turns texts into pieces of work, says which of them can share a batch and what they cost, and runs a batch.
The scheduler calls `run` from one thread; everything else is called from any.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol


class Task:
    """One sequence on its way through the model.

    Args:
        work: what the engine is to do, as it has prepared it itself.
        kind: tasks of the same kind can share a batch.
        cost: tokens that a row of a batch has with it.
        deadline: when nobody waits for it any more, on the clock `time.monotonic`.
        on_text: told of more text while it comes.
        on_end: told of the result, or of what has gone wrong.
    """

    def __init__(
        self,
        work: Any,
        kind: Hashable,
        cost: int,
        deadline: float,
        on_text: Callable[[Any], None],
        on_end: Callable[[Any], None],
    ):
        self.work, self.kind, self.cost, self.deadline = work, kind, cost, deadline
        self._on_text, self._on_end = on_text, on_end
        self.is_cancelled = self.is_done = self.has_text = False

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.is_cancelled and time.monotonic() < self.deadline

    def show(self, text: Any) -> None:
        """Hands on a part of the result."""
        self.has_text = True
        self._on_text(text)

    def finish(self, result: Any) -> None:
        """Hands on the result, or an exception in its place. It can be called while other tasks of the batch go on."""
        if not self.is_done:
            self.is_done = True
            self._on_end(result)


class Engine(Protocol):
    """A model, and how it is run."""

    task: str
    """As transformers calls it: translation, text-generation or fill-mask."""

    longest: int
    """Tokens of a sequence."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts, with the marks that the model reads."""
        ...

    def kind(self, work: Any) -> Hashable:
        """What two pieces of work must have in common to share a batch."""
        ...

    def cost(self, work: Any) -> int:
        """Tokens that work takes in a batch."""
        ...

    def run(self, tasks: Sequence[Task]) -> None:
        """Finishes tasks of one kind; may leave alone those that are not wanted any more.

        Raises:
            Exception: what went wrong; tasks that are not finished are then run again, alone.
        """
        ...
