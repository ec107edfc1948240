"""What a run computes on, in words, for its records and its card."""

import os
import platform
from pathlib import Path

import torch


def describe_hardware() -> str:
    """The CPU or the GPUs that this process computes on."""
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [
            line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        name = models[0] if models else name
    cores = count_cores()
    return f"{cores} core{'s' if cores != 1 else ''} of {name}"


def count_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
