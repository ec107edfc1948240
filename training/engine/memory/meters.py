"""How much memory is in use, free, and used at the most while something runs; of a GPU, or of this process."""

import ctypes
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil
import torch


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
        return min(psutil.virtual_memory().available, find_control_group_room()) / processes

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


def find_control_group_room(root: Path = Path("/")) -> float:
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
