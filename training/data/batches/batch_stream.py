"""The endless stream of batches that a run walks through, on as many processes as there are.

A stream's position is three numbers, epoch, pool and index, the same on all processes. An epoch's batches depend on its
number and the run's seed alone, so the position determines all that follows: a resumed run sees exactly the batches
that the interrupted one would have seen, however many worker processes collate them.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from ...console.input_error import InputError
from .token_budget import Batch


@dataclass(frozen=True)
class Position:
    """Where a batch lies: batch `index` of pool `pool` of an epoch, counted over all processes."""

    epoch: int = 0
    pool: int = 0
    index: int = 0


class BatchStream:
    """An endless iterator over the batches of one process, epoch after epoch, that can be saved and resumed.

    Batches come in pools: as many as are shuffled at a time. A corpus in memory, or mapped into it, has one pool an
    epoch; a stream has one for every filling of its buffer. The processes take turns at the batches of an epoch; what
    is left when there is no longer one for each is dropped, so that all take the same number of steps.

    Args:
        pools: for an epoch, its pools from a given one on, the same at every call; the items of a pool are what
            `collate` takes.
        collate: makes tensors of one of them. It depends on nothing else: what is random in it must come from a seed
            in the item.
        process_index, num_processes: which of the processes this is.
        num_workers: how many further processes collate ahead of time; with 0 it is done here when a batch is wanted.
            Where they are not forked off (macOS, Windows, Python 3.14), `collate` is pickled.
    """

    def __init__(
        self,
        pools: Callable[[int, int], Iterator[Sequence[Any]]],
        collate: Callable[[Any], Batch],
        process_index: int = 0,
        num_processes: int = 1,
        num_workers: int = 0,
    ):
        self.pools, self.collate = pools, collate
        self.process_index, self.num_processes = process_index, num_processes
        self.num_workers = num_workers
        self._next = Position()

    def __iter__(self) -> Iterator[Batch]:
        """Goes on from the current position.

        Raises:
            InputError: if an epoch has fewer batches than there are processes, or if the position is not one of the
                data's; as well as what `pools` and `collate` raise, each when it is that batch's turn.
        """
        for batch, following in self._collate_ahead() if self.num_workers else self._collate_here():
            self._next = following  # before the yield: a state saved after this batch points to the next one
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The position of the next batch that has not been returned yet, whatever has been collated ahead."""
        return asdict(self._next)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continues at a saved position; call before iterating."""
        self._next = Position(**state)

    def _collate_here(self) -> Iterator[tuple[Batch, Position]]:
        for item, following in self._items():
            yield self.collate(item), following

    def _collate_ahead(self) -> Iterator[tuple[Batch, Position]]:
        upcoming: deque[Position] = deque()  # what follows each batch that the workers have been given
        failures: list[Exception] = []  # held back until all batches before them have been returned

        def items() -> Iterator[Any]:
            try:
                for item, following in self._items():
                    upcoming.append(following)
                    yield item
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)

        loader = DataLoader(
            _AsIs(),
            sampler=items(),
            batch_size=None,
            collate_fn=_Collate(self.collate),
            num_workers=self.num_workers,
            worker_init_fn=_leave_process_group,
            generator=torch.Generator(),  # or the loader would draw from the one that dropout draws from
        )
        try:
            for batch in loader:
                if isinstance(batch, InputError):
                    failures.append(batch)
                    break
                yield batch, upcoming.popleft()
        except BaseException as error:
            # The loader ends its workers when nothing holds it any more, and the frames of a traceback would.
            error.__traceback__ = None
            raise
        raise failures[-1]

    def _items(self) -> Iterator[tuple[Any, Position]]:
        """What this process collates, and the position after all processes have taken their turn at it."""
        position = self._next
        while True:
            # The same iterator several times makes groups of one item for each process; zip drops an incomplete one.
            groups = zip(*[self._items_of_epoch(position)] * self.num_processes, strict=False)
            is_empty = True
            for group in groups:
                is_empty = False
                yield group[self.process_index][0], group[-1][1]
            if is_empty and position == Position(position.epoch):
                raise InputError(
                    f"epoch {position.epoch} has too few batches for {self.num_processes} processes; each needs at "
                    "least one: give more data, fewer tokens a batch, or fewer processes"
                )
            position = Position(position.epoch + 1)

    def _items_of_epoch(self, position: Position) -> Iterator[tuple[Any, Position]]:
        start = position.index
        for number, pool in enumerate(self.pools(position.epoch, position.pool), position.pool):
            if start > len(pool):
                raise InputError(
                    f"the saved position is batch {start} of pool {number} in epoch {position.epoch}, which has "
                    f"{len(pool)}: the data, or what decides the batches, is not what it was"
                )
            for index in range(start, len(pool)):
                yield pool[index], Position(position.epoch, number, index + 1)
            start = 0


class _AsIs(Dataset[Any]):
    """What the loader looks items up in: they are complete already."""

    def __getitem__(self, item: Any) -> Any:
        return item


class _Collate:
    """Returns an `InputError` instead of raising it: the loader would put a traceback into its message."""

    def __init__(self, collate: Callable[[Any], Batch]):
        self.collate = collate

    def __call__(self, item: Any) -> Batch | InputError:
        try:
            return self.collate(item)
        except InputError as error:
            return error


def _leave_process_group(worker: int) -> None:
    """Keeps a Ctrl-C, and a SIGTERM to the whole job, from the workers.

    The main process may want to finish a step and save its state first; when it goes, the workers follow.
    """
    if hasattr(os, "setpgrp"):  # not on Windows
        os.setpgrp()
