"""The longest batch is tried before training starts, whole or cut into parts, so that all of them fit into memory."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist

from ...console.input_error import InputError
from ...data.batches.token_budget import Batch
from ...recipe.optimization import Optimization
from .meters import DeviceMemory, Memory, ResidentMemory
from .split_batch import split_batch

FREE_SHARE = 0.9
"""What `split_batches: auto` takes of the memory that is free."""

LARGEST_LEAP = 2
"""How many times as many rows as have been tried are tried next, at most: what is extrapolated far may be wrong, and a
CPU that runs out of memory kills the process."""

ROWS_TRUSTED = 8
MARGIN = 4
"""Once so many rows have been tried, the whole is tried at once if even so many times what is extrapolated fits."""


def dry_run(
    step: Callable[[list[Batch]], None],
    batch: Batch,
    options: Optimization,
    device: torch.device,
    later_bytes: int,
) -> int:
    """Tries the longest batch, and returns into how many parts every batch is cut.

    What counts is the peak of the memory that torch has allocated on a GPU, or that this process has resident on a
    CPU. Of the parts of a batch the two largest are run, as the second meets the first one's gradients. Parts
    grow from one row upwards until the next ones are expected not to fit; only a GPU, which survives running out of
    memory, tries a given number at once. All processes of a run must call this, and come to the same number.

    Args:
        step: runs parts forward and backward, and leaves no gradients behind, not even if it fails.
        batch: the longest.
        options: `split_batches`, `memory_budget` (on a CPU for each process) and `accumulation_steps`.
        device: what the model is on.
        later_bytes: what will be in memory besides, such as the optimizers' state.

    Raises:
        InputError: if it does not fit.
    """
    memory: Memory = DeviceMemory(device) if device.type == "cuda" else ResidentMemory()
    rows, is_auto = len(batch["labels"]), options.split_batches == "auto"
    wanted = 1 if options.split_batches == "auto" else min(options.split_batches, rows)
    before = memory.taken()
    budget: float = before + memory.free() * (FREE_SHARE if is_auto else 1.0)
    if options.memory_budget is not None:
        budget = options.memory_budget * 1e9
    budget = -_largest(-budget, device)

    def takes(parts: int) -> float:
        groups = split_batch(batch, parts) * min(2, options.accumulation_steps)
        two_largest = sorted(groups, key=_positions)[-2:]
        return _largest(memory.peak(lambda: step(two_largest)) + later_bytes, device)

    if device.type == "cuda" and not is_auto:
        found = Parts(wanted, takes(wanted), 0.0)
    else:
        found = find_fewest_parts(takes, rows, wanted, before + later_bytes, budget)
    if found.takes <= budget and (is_auto or found.number == wanted):
        return found.number if options.split_batches == "auto" else options.split_batches
    parts = found.number if is_auto or found.takes > budget else wanted
    taken = found.takes + found.takes_per_row * (_rows(rows, parts) - _rows(rows, found.number))
    raise InputError(_too_large(batch, parts, taken, budget, options))


class Parts(NamedTuple):
    """How batches are cut, and what that takes."""

    number: int
    takes: float
    """Bytes."""

    takes_per_row: float
    """Bytes that a part of one row more is expected to take besides."""


def find_fewest_parts(takes: Callable[[int], float], rows: int, fewest: int, fixed: float, budget: float) -> Parts:
    """The smallest number of parts, from `fewest` on, with which a batch fits into memory.

    Args:
        takes: the bytes of a number of parts, measured; infinite where there was not enough memory. Beyond parts of
            two rows it is asked for numbers only that are expected to fit.
        rows: of the batch, and the largest number of parts.
        fixed: bytes that no rows at all would take.
        budget: bytes that may be taken.

    Returns:
        The number that was measured to fit; `rows` where not even that does.
    """
    parts, taken = rows, takes(rows)
    size, largest = 1, _rows(rows, fewest)  # of a part: that fits, and that may
    per_row = taken - fixed
    while taken <= budget and size < largest:
        most = min(LARGEST_LEAP * size, largest)
        if size > 1 and per_row > 0:  # of two rows no more is known than that they take less than twice as much as one
            most = min(most, int(size + (budget - taken) / per_row))
            if size >= ROWS_TRUSTED and taken + MARGIN * per_row * (largest - size) <= budget:
                most = largest
        fewer = max(fewest, _rows(rows, most))
        if fewer >= parts:
            break
        more, measured = _rows(rows, fewer), takes(fewer)
        per_row = (measured - taken) / (more - size)
        if measured <= budget:
            parts, size, taken = fewer, more, measured
        else:
            largest = more - 1
            if math.isinf(measured):  # what it would have taken is not known: half the way
                per_row = 2 * (budget - taken) / (more - size)
    return Parts(parts, taken, per_row)


def _rows(rows: int, parts: int) -> int:
    """Rows of the largest of some parts; or of parts of so many rows, how many there are."""
    return -(-rows // parts)


def _positions(batch: Batch) -> int:
    return sum(tensor.numel() for tensor in batch.values())


def _largest(value: float, device: torch.device) -> float:
    """The largest of all processes' values."""
    if not (dist.is_available() and dist.is_initialized()):
        return value
    shared = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return shared.item()


def _too_large(batch: Batch, parts: int, taken: float, budget: float, options: Optimization) -> str:
    rows, width = len(batch["labels"]), max(tensor.shape[1] for tensor in batch.values())
    split = f" in {parts} parts" if parts > 1 else ""
    figure = f"{taken / 1e9:.3g} GB" if math.isfinite(taken) else "more"
    limit = "are free" if options.memory_budget is None else "optimization.memory_budget allows"
    auto = "" if options.split_batches == "auto" else "optimization.split_batches auto, "
    return (
        f"the longest batch, {rows} x {width} tokens{split}, takes {figure} with weights, gradients and optimizer "
        f"state, and {budget / 1e9:.3g} GB {limit}; set {auto}fewer optimization.tokens_per_batch, or "
        "optimization.gradient_checkpointing true"
    )
