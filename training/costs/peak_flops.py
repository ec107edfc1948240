"""The peak speed of a device: what its data sheet promises, or what is measured on it."""

import re
import time
from typing import Literal

import torch

from ..console.input_error import InputError
from ..console.suggestions import suggest

THIS_DEVICE = "this"
"""The name under which the speed of this machine is measured."""

Precision = Literal["fp32", "bf16", "fp16"]

Speed = Precision | Literal["tf32"]
"""What products of matrices are computed in."""

PEAK_TFLOPS: dict[str, dict[Speed, float]] = {
    # Products of dense matrices with sums in float32, from NVIDIA's documents; float32 is true float32, not TF32, which
    # has a figure of its own where tensor cores know it.
    "P100": {"fp32": 10.6, "fp16": 21.2},  # Tesla P100 data sheet, SXM2; no tensor cores
    "V100": {"fp32": 15.7, "fp16": 125},  # Tesla V100 data sheet, SXM2
    "T4": {"fp32": 8.1, "fp16": 65},  # T4 data sheet
    "RTX3090": {"fp32": 35.6, "tf32": 35.6, "fp16": 71, "bf16": 71},  # GA102 architecture white paper
    "RTX4090": {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2},  # Ada architecture white paper
    "L4": {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121},  # L4 data sheet, half of those with sparsity
    "A100": {"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312},  # A100 data sheet, SXM
    "H100": {"fp32": 67, "tf32": 494, "fp16": 989, "bf16": 989},  # H100 data sheet, SXM, half of those with sparsity
    "H200": {"fp32": 67, "tf32": 494, "fp16": 989, "bf16": 989},  # H200 data sheet, SXM, half of those with sparsity
}
"""Peak speed of well-known devices, in 10^12 floating-point operations a second."""

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


def peak_flops(hardware: str, precision: Precision) -> float:
    """Peak floating-point operations a second of a device by name; `THIS_DEVICE` is measured.

    Raises:
        InputError: if the device is not in the table, or cannot compute in this precision.
    """
    if hardware == THIS_DEVICE:
        return measure_flops(precision)
    names = {name.lower(): name for name in PEAK_TFLOPS}
    wanted = hardware.lower().replace(" ", "").replace("-", "")
    if wanted not in names:
        hint = suggest(wanted, PEAK_TFLOPS, f"there are {', '.join(PEAK_TFLOPS)} and {THIS_DEVICE}")
        raise InputError(f"--hardware is {hardware}; {hint} (for any other device give --flops)")
    speeds = PEAK_TFLOPS[names[wanted]]
    if precision not in speeds:
        raise InputError(
            f"--precision is {precision}, which {names[wanted]} cannot multiply; it must be {' or '.join(speeds)}"
        )
    return speeds[precision] * 1e12


def measure_flops(precision: Precision, *, seconds: float = 0.3) -> float:
    """Floating-point operations a second of products of large matrices on this machine: the best of several."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = 8192 if device == "cuda" else 1024
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    own = torch.Generator(device).manual_seed(0)  # a run's random numbers are the same, measured or not
    left, right = (torch.randn(size, size, device=device, generator=own).to(dtype) for _ in range(2))

    def multiply() -> float:
        start = time.perf_counter()
        left @ right
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    end = time.perf_counter() + seconds
    multiply()  # the first one also loads libraries
    best = multiply()
    while time.perf_counter() < end:
        best = min(best, multiply())
    return 2 * size**3 / best


def peak_flops_of(device: torch.device, precision: str) -> float:
    """Peak floating-point operations a second of one device: from its data sheet, or measured where there is none.

    The measurement takes half a second and is what products of large matrices reach, with all threads of this process:
    less than what data sheets promise, so that a utilisation by it comes out higher. It follows torch's setting for
    float32 products, so call this after that is made.

    Args:
        device: a CPU or a GPU; the process's own.
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
