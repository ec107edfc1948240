"""How well training uses its devices, and how much energy that takes.

Model FLOPs utilisation is what a step's batches cost by the model's formula, over what the devices could have computed
in the time that the step took (Chowdhery et al. 2022, arXiv 2204.02311, appendix B):

    FLOPs of the batches / (seconds * peak FLOPs a second of a device * devices)

Padding, what gradient checkpointing computes again and what an update computes are no work of the model: they lower it.
"""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from ...modeling.linear_attention import CHUNK_SIZE
from ..compute_budget import PEAK_TFLOPS, Speed, measure_flops
from ..costs import Config, training_flops
from ..data.batching import Batch

SPEEDS: dict[str, Speed] = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "tf32": "tf32"}
"""`optimization.mixed_precision` -> what matrix products are computed in."""

DEVICE_NAMES = {
    r"P100-SXM2-\d+GB": "P100",
    r"V100-SXM[23]-\d+GB(-LS)?": "V100",
    r"T4": "T4",
    r"RTX 3090": "RTX3090",
    r"RTX 4090": "RTX4090",
    r"L4": "L4",
    r"A100-(SXM4|PCIE)-\d+GB|A100 80GB PCIe": "A100",
    r"H100 80GB HBM3": "H100",
    r"H200": "H200",
}
"""What drivers call the devices of `PEAK_TFLOPS`. Whole names, because others that begin alike are other devices: L40S,
H100 PCIe, RTX 4090 Laptop GPU, a MIG slice of an A100."""

MOST_WATTS = 500.0
"""No processor package takes more."""


def peak_flops_of(device: torch.device, precision: str) -> float:
    """Peak floating-point operations a second of one device: from its data sheet, or measured where there is none.

    The measurement takes half a second and is what products of large matrices reach, with all threads of this process:
    less than what data sheets promise, so that a utilisation by it comes out higher. It follows torch's setting for
    float32 products, so call this after that is made.

    Args:
        device: a processor or a GPU; the process's own.
        precision: a value of `optimization.mixed_precision`.
    """
    speed = SPEEDS[precision]
    if device.type == "cuda":
        name = re.sub(r"^(NVIDIA |Tesla |GeForce )+", "", torch.cuda.get_device_name(device))
        known = next((model for pattern, model in DEVICE_NAMES.items() if re.fullmatch(pattern, name)), None)
        speeds = PEAK_TFLOPS[known] if known else {}
        if speed == "tf32" and "tf32" not in speeds:  # torch's setting has no effect before Ampere
            speed = "fp32"
        if speed in speeds:
            return speeds[speed] * 1e12
    measured = measure_flops("fp32" if speed == "tf32" else speed)
    if device.type == "cuda":
        torch.cuda.empty_cache()  # the matrices are large
    return measured


class StepFlops:
    """Model FLOPs of batches, forward and backward: the sum of `training_flops` over rows, each at its own length.

    For rows of T_i tokens (and S_i of a source) that is

        a sum(T_i) + b sum(T_i^2) + c sum(S_i) + d sum(S_i^2) + e sum(T_i S_i)

    whose coefficients are read off `training_flops`. Lengths are those of `attention_mask`, or of what is not padding;
    targets' are those of their labels. So padding does not count, nor what gradient checkpointing computes again.

    It is exact but for what `training_flops` itself says: masked scores count, also those of separate documents in one
    row, and a masked language model predicts `MASKED_SHARE` of its tokens. Of causal linear attention, whose chunks are
    of `CHUNK_SIZE`, the last one counts for the tokens that it has. R-Drop passes each batch through the model twice,
    and this counts one pass.

    A call takes some ten microseconds for a batch in the memory of the processor, and waits for one that is on a GPU.

    Args:
        config: of any family.
    """

    def __init__(self, config: Config):
        self.is_encoder_decoder = config.is_encoder_decoder
        self.padding = -1 if config.pad_token_id is None else config.pad_token_id

        def cost(targets: int, sources: int) -> float:
            """In units of chunks."""
            return training_flops(config, targets * CHUNK_SIZE, sources * CHUNK_SIZE)

        once = torch.tensor([cost(1, 0), cost(0, 1)], dtype=torch.float64)
        twice = torch.tensor([cost(2, 0), cost(0, 2)], dtype=torch.float64)
        squares = (twice - 2 * once) / 2
        self.linear = (once - squares) / CHUNK_SIZE
        """(a, c), (2,)."""
        self.quadratic = torch.full((2, 2), (cost(1, 1) - cost(1, 0) - cost(0, 1)) / 2, dtype=torch.float64)
        self.quadratic.diagonal().copy_(squares)
        self.quadratic /= CHUNK_SIZE**2
        """((b, e / 2), (e / 2, d)), (2, 2)."""

    def __call__(self, batch: Batch) -> float:
        """The FLOPs of a batch as its task collates it: `input_ids`, `labels` and perhaps `attention_mask`, (B, T)."""
        masks = [batch["labels"] != -100] if self.is_encoder_decoder else []
        masks.append(batch["attention_mask"] if "attention_mask" in batch else batch["input_ids"] != self.padding)
        tokens = torch.stack([mask.sum(1) for mask in masks]).double().cpu()  # (1 or 2, B)
        count = len(tokens)
        linear, quadratic = self.linear[:count], self.quadratic[:count, :count]
        return float(linear @ tokens.sum(1) + (quadratic * (tokens @ tokens.T)).sum())


class EnergyMeter:
    """An estimate of the energy that a run's devices take, by the best source there is.

    1. GPUs: NVML's energy counters, of whole boards (NVIDIA since Volta, with the package nvidia-ml-py).
    2. Processors: Linux's RAPL counters, of whole packages with everything that runs on them, where they can be read,
       which mostly takes root.
    3. Else `run.device_watts` times the time times the devices: an upper estimate if that is the device's limit.

    Not in it: memory, disks, fans and network of the host, its processors where GPUs compute, losses of power supplies,
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
        self.counters: Sequence[EnergyCounter] = []
        measured = "not measured"
        if device.type == "cuda":
            self.counters, measured = nvml_counters(local_devices), "measured by NVML (GPU boards only)"
        elif device.type == "cpu":
            self.counters, measured = rapl_counters(powercap), "measured by RAPL (processor packages only)"
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

        Call it every minute or so: a processor's counter wraps around, some after a few minutes at full power, and that
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


class EnergyCounter(Protocol):
    """Counts the energy that something uses, from some time in the past."""

    @property
    def wraps_at(self) -> int | None:
        """Microjoules after which it begins anew at 0; None if no run lives to see that."""

    def read(self) -> int:
        """Microjoules.

        Raises:
            OSError, ValueError: if it cannot be read.
        """


class RaplCounter:
    """A zone of Linux's power capping framework, with its counter `energy_uj`."""

    def __init__(self, zone: Path):
        self.file = zone / "energy_uj"
        self.wraps_at = int((zone / "max_energy_range_uj").read_text()) + 1

    def read(self) -> int:
        return int(self.file.read_text())


def rapl_counters(powercap: Path) -> list[RaplCounter]:
    """The counters of all processor packages, or none, if one of them cannot be read."""
    try:
        # Also of AMD's processors; the other zones are parts of packages, or the whole platform.
        zones = sorted(powercap.glob("intel-rapl:*"))
        return [RaplCounter(zone) for zone in zones if (zone / "name").read_text().startswith("package")]
    except (OSError, ValueError):
        return []


class NvmlCounter:
    """The energy counter of a GPU, since its driver was loaded."""

    wraps_at = None

    def __init__(self, nvml: Any, device: torch.device):
        self.nvml = nvml
        # By its identity, since torch numbers only the devices that CUDA_VISIBLE_DEVICES leaves.
        self.handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")

    def read(self) -> int:
        try:
            return 1000 * self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)
        except self.nvml.NVMLError as error:
            raise OSError(str(error)) from error


def nvml_counters(count: int) -> list[NvmlCounter]:
    """The counters of the first GPUs that torch sees, or none, if one of them has none."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        counters = [NvmlCounter(pynvml, torch.device("cuda", index)) for index in range(count)]
        for counter in counters:
            counter.read()
    except (pynvml.NVMLError, OSError, RuntimeError):
        return []
    return counters
