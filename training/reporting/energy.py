"""How much energy training takes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

MOST_WATTS = 500.0
"""No CPU package takes more."""


class EnergyMeter:
    """An estimate of the energy that a run's devices take, by the best source there is.

    1. GPUs: NVML's energy counters, of whole boards (NVIDIA since Volta, with the package nvidia-ml-py).
    2. CPUs: Linux's RAPL counters, of whole packages with everything that runs on them, where they can be read,
       which mostly takes root.
    3. Else `run.device_watts` times the time times the devices: an upper estimate if that is the device's limit.

    Not in it: memory, disks, fans and network of the host, its CPUs where GPUs compute, losses of power supplies,
    cooling.

    Make one, in the first process: it stands for all devices of its host, and where the run has others as well it takes
    them to use as much. Nothing in it raises; what cannot be read is not known.

    Args:
        device: that of this process.
        num_devices: devices of the run, one a process.
        local_devices: those of them on this host.
        device_watts: `run.device_watts`.
        powercap: folder of the RAPL counters.
    """

    def __init__(
        self,
        device: torch.device,
        num_devices: int,
        local_devices: int,
        device_watts: float | None,
        powercap: Path = Path("/sys/class/powercap"),
    ):
        self.scale = num_devices / local_devices
        self.watts = device_watts and device_watts * num_devices
        self.counters: list[EnergyCounter] = []
        measured = "not measured"
        if device.type == "cuda":
            self.counters, measured = find_nvml_counters(local_devices), "measured by NVML (GPU boards only)"
        elif device.type == "cpu":
            self.counters, measured = find_rapl_counters(powercap), "measured by RAPL (processor packages only)"
        if self.scale > 1:
            measured += f" on {local_devices} of {num_devices} devices, and scaled up"
        self.measured, self.is_lower_bound = measured, False
        self.start()

    @property
    def source(self) -> str:
        """Where the figure comes from, in words."""
        if self.counters:
            return f"{self.measured}, a lower bound" if self.is_lower_bound else self.measured
        return "device_watts x time x devices (an upper estimate)" if self.watts else "not known"

    def start(self) -> None:
        """Begins to count, from 0."""
        self.began = self.last_read = time.perf_counter()
        self.microjoules = 0
        self.readings = self._read()

    def joules(self) -> float | None:
        """Joules since `start`, by all devices of the run; None if that is not known.

        Call it every minute or so: a CPU's counter wraps around, some after a few minutes at full power, and that
        it did so twice between two calls does not show. After a gap in which it could have, the figure is a lower
        bound, and `source` says so.
        """
        now, readings = time.perf_counter(), self._read()
        if not self.counters:
            return None if self.watts is None else self.watts * (now - self.began)
        for counter, before, after in zip(self.counters, self.readings, readings, strict=True):
            difference = after - before
            self.microjoules += difference if counter.wraps_at is None else difference % counter.wraps_at
            could_be = (now - self.last_read) * MOST_WATTS * 1e6
            self.is_lower_bound |= counter.wraps_at is not None and could_be > counter.wraps_at
        self.readings, self.last_read = readings, now
        return self.scale * self.microjoules / 1e6

    def _read(self) -> list[int]:
        """All counters, in microjoules; where one fails, none is used any more."""
        try:
            return [counter.read() for counter in self.counters]
        except (OSError, ValueError):
            self.counters = []
            return []


@dataclass(frozen=True)
class EnergyCounter:
    """Counts the energy that something uses, from some time in the past."""

    read: Callable[[], int]
    """Microjoules; raises OSError or ValueError if it cannot be read."""

    wraps_at: int | None = None
    """Microjoules after which it begins anew at 0; None if no run lives to see that."""


def find_rapl_counters(powercap: Path) -> list[EnergyCounter]:
    """The counters of all CPU packages, or none, if one of them cannot be read."""

    def read(file: Path) -> int:
        return int(file.read_text())

    try:
        # Also of AMD's CPUs; the other zones are parts of packages, or the whole platform.
        zones = [
            zone for zone in sorted(powercap.glob("intel-rapl:*")) if (zone / "name").read_text().startswith("package")
        ]
        return [
            EnergyCounter(partial(read, zone / "energy_uj"), wraps_at=read(zone / "max_energy_range_uj") + 1)
            for zone in zones
        ]
    except (OSError, ValueError):
        return []


def find_nvml_counters(count: int) -> list[EnergyCounter]:
    """The counters of the first GPUs that torch sees, since their driver was loaded; or none, if one has none."""
    try:
        import pynvml
    except ImportError:
        return []

    def read(handle: Any) -> int:
        try:
            return 1000 * pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        except pynvml.NVMLError as error:
            raise OSError(str(error)) from error

    try:
        pynvml.nvmlInit()
        # By their identity, since torch numbers only the devices that CUDA_VISIBLE_DEVICES leaves.
        names = [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(count)]
        counters = [EnergyCounter(partial(read, pynvml.nvmlDeviceGetHandleByUUID(name))) for name in names]
        for counter in counters:
            counter.read()
    except (pynvml.NVMLError, OSError, RuntimeError):
        return []
    return counters
