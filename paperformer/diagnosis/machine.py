"""What this machine computes with, and how fast."""

import codecs
import locale
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from huggingface_hub import constants, get_token

from ..training.costs.peak_flops import measure_flops
from ..training.engine.devices.hardware import count_cores, describe_hardware

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
"""There where Linux has loaded NVIDIA's driver."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Facts about the machine and the process; bytes, and floating-point operations a second."""

    hardware: str
    has_gpu: bool
    has_nvidia_driver: bool
    torch_is_for_gpus: bool
    """Whether the installed PyTorch was built for GPUs at all."""
    cores: int
    """That this process may use."""
    threads: int
    """That torch computes with."""
    busy_cores: float
    """Mean number of cores that were wanted in the last minute, by all processes; 0 where that is not known."""
    memory: int
    free_memory: int
    cache: Path
    """Where models and data of the Hub are kept."""
    free_disk: dict[Path, int]
    float32_flops: float
    bf16_flops: float
    hub: str
    """Its address."""
    is_offline: bool
    has_token: bool
    encoding: str
    """Of standard output, by Python's name for it."""


def examine_machine() -> Machine:
    """Looks at the machine, and measures for a second how fast it multiplies matrices."""
    memory = psutil.virtual_memory()
    cache = Path(constants.HF_HUB_CACHE)
    return Machine(
        hardware=describe_hardware(),
        has_gpu=torch.cuda.is_available(),
        has_nvidia_driver=NVIDIA_DRIVER.exists(),
        torch_is_for_gpus=torch.version.cuda is not None or torch.version.hip is not None,
        cores=count_cores(),
        threads=torch.get_num_threads(),
        busy_cores=os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
        memory=memory.total,
        free_memory=memory.available,
        cache=cache,
        free_disk={folder: _free_disk(folder) for folder in (Path.cwd(), cache)},
        float32_flops=measure_flops("fp32"),
        bf16_flops=measure_flops("bf16"),
        hub=constants.ENDPOINT,
        is_offline=constants.HF_HUB_OFFLINE,
        has_token=get_token() is not None,
        encoding=codecs.lookup(sys.stdout.encoding or locale.getpreferredencoding()).name,
    )


def _free_disk(folder: Path) -> int:
    """Bytes that can be written to a folder, or to where it will be made."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free
