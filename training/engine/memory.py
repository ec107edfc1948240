"""Fitting training into memory: batches cut into parts, and the longest batch tried before training starts."""

import ctypes
import math
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from ..data.batching import Batch
from ..input_error import InputError
from ..options.optimization import Optimization

FREE_SHARE = 0.9
"""What `split_batches: auto` takes of the memory that is free."""

LARGEST_LEAP = 2
"""How many times as many rows as have been tried are tried next, at most: what is extrapolated far may be wrong, and a
processor that runs out of memory kills the process."""

ROWS_TRUSTED = 8
MARGIN = 4
"""Once so many rows have been tried, the whole is tried at once if even so many times what is extrapolated fits."""


def split_batch(batch: Batch, parts: int, *, fill_up: bool = False) -> list[Batch]:
    """Cuts a batch into groups of rows, and off each group the columns that are padding in all of its rows.

    The first dimension of every tensor is rows, the second positions, padded on the right. Labels, and tensors whose
    names begin with `decoder_`, end with the group's last label other than -100; all other tensors end with the last 1
    of its `attention_mask`, or where a batch has none, with the labels, as after them nothing is predicted.

    Args:
        batch: with `labels`.
        parts: how many groups, as equal as possible; a batch of fewer rows has as many as it has rows.
        fill_up: whether those that are missing are made up for by a token without a label, which changes nothing: where
            a model is sharded, all processes have to compute equally often.
    """
    full = min(parts, len(batch["labels"]))
    groups = zip(*(tensor.tensor_split(full) for tensor in batch.values()), strict=True)
    cut = [_without_padding(dict(zip(batch, tensors, strict=True))) for tensors in groups]
    if fill_up and full < parts:
        token = {name: tensor[:1, :1] for name, tensor in batch.items()}
        cut += [token | {"labels": torch.full_like(token["labels"], -100)}] * (parts - full)
    return cut


def _without_padding(batch: Batch) -> Batch:
    target = source = _width(batch["labels"] != -100)
    if "attention_mask" in batch:
        source = _width(batch["attention_mask"] != 0)
    return {
        name: tensor[:, : target if name == "labels" or name.startswith("decoder_") else source]
        for name, tensor in batch.items()
    }


def _width(is_used: torch.Tensor) -> int:
    """Columns up to the last that a row uses, at least one."""
    used = is_used.any(dim=0).nonzero()
    return int(used[-1]) + 1 if len(used) else 1


def optimizer_state_bytes(optimizers: Iterable[torch.optim.Optimizer]) -> int:
    """What optimizers will keep on this process, from their first step on; of a sharded parameter for its shard."""
    return sum(
        _state_bytes(optimizer, p.to_local() if isinstance(p, DTensor) else p)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for p in group["params"]
    )


def _state_bytes(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> int:
    """Adam has means of gradients and of their squares, Muon a sum of gradients, Adafactor a mean of squares for each
    row and each column of a matrix (Shazeer and Stern 2018, section 4).
    """
    numbers = 2 * parameter.numel()
    if isinstance(optimizer, torch.optim.Muon):
        numbers = parameter.numel()
    elif isinstance(optimizer, torch.optim.Adafactor):
        rows, columns = parameter.shape[-2:] if parameter.dim() > 1 else (parameter.numel(), 0)
        numbers = math.prod(parameter.shape[:-2]) * (rows + columns)
    return numbers * parameter.element_size()


def dry_run(
    step: Callable[[list[Batch]], None],
    batch: Batch,
    options: Optimization,
    device: torch.device,
    later_bytes: int,
) -> int:
    """Tries the longest batch, and returns into how many parts every batch is cut.

    What counts is the peak of the memory that torch has allocated on a GPU, or that this process has resident on a
    processor. Of the parts of a batch the two largest are run, as the second meets the first one's gradients. Parts
    grow from one row upwards until the next ones are expected not to fit; only a GPU, which survives running out of
    memory, tries a given number at once. All processes of a run must call this, and come to the same number.

    Args:
        step: runs parts forward and backward, and leaves no gradients behind, not even if it fails.
        batch: the longest.
        options: `split_batches`, `memory_budget` (on a processor for each process) and `accumulation_steps`.
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
        found = fewest_parts(takes, rows, wanted, before + later_bytes, budget)
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


def fewest_parts(takes: Callable[[int], float], rows: int, fewest: int, fixed: float, budget: float) -> Parts:
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


class Memory(Protocol):
    """The memory that a model computes in; all figures are bytes."""

    def taken(self) -> int:
        """What is in use now."""

    def free(self) -> float:
        """What is not, by anybody."""

    def peak(self, run: Callable[[], None]) -> float:
        """The most that is in use while something runs; infinite if there was not enough."""


class DeviceMemory:
    """The memory of a GPU, as far as torch's allocator hands it out; other libraries have theirs before training."""

    def __init__(self, device: torch.device):
        self.device = device

    def taken(self) -> int:
        return torch.cuda.memory_allocated(self.device)

    def free(self) -> float:
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(self.device)
        return free + torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)

    def peak(self, run: Callable[[], None]) -> float:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        try:
            run()
        except torch.OutOfMemoryError:
            return math.inf
        return torch.cuda.max_memory_allocated(self.device)


class ResidentMemory:
    """The resident memory of this process, and what the system or the container leaves it.

    glibc keeps what has been freed (see `allocator`), and would hand it to the next run unnoticed. So before anything
    is measured it gives back all that it can, which it does whatever its settings.
    """

    def taken(self) -> int:
        _give_back_freed_memory()
        resident: int = psutil.Process().memory_info().rss
        return resident

    def free(self) -> float:
        # Processes of the same run on this machine share it; torchrun and accelerate say how many they are.
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return min(psutil.virtual_memory().available, control_group_room()) / processes

    def peak(self, run: Callable[[], None]) -> float:
        _give_back_freed_memory()
        try:
            Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to what is resident now; see proc(5)
        except OSError:  # not Linux, or a container that may not
            return _sampled_peak(run)
        run()
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _give_back_freed_memory() -> None:
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # not glibc, as in `allocator`
        return


def _sampled_peak(run: Callable[[], None]) -> float:
    """The most resident memory that is seen while something runs, looking a thousand times a second."""
    process, is_done = psutil.Process(), threading.Event()
    peak: int = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not is_done.wait(0.001):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run()
    finally:
        is_done.set()
        watcher.join()
    return peak


def control_group_room(root: Path = Path("/")) -> float:
    """Bytes that this process's control group, or one around it, still lets it have; infinite without a limit.

    Args:
        root: what `proc` and `sys` are in.
    """
    room = math.inf
    groups = root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            top, limit, usage, files = "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):  # version 1
            top, limit, usage = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            files = "total_inactive_file"
        else:
            continue
        own = root / top / path.lstrip("/")
        for folder in (own, *own.parents):
            if not (folder / limit).exists() or (most := (folder / limit).read_text().strip()) == "max":
                continue
            figures = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            # Files that were read and are kept in memory give way.
            room = min(room, int(most) - int((folder / usage).read_text()) + int(figures[files]))
    return room
