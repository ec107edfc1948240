"""What training compute buys: the speed of devices, and the model and data that suit a given number of FLOPs.

Symbols: C floating-point operations of a training run, N parameters, D tokens of training data, L loss.
"""

import time
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from .costs import Precision
from .input_error import InputError

THIS_DEVICE = "this"
"""The name under which the speed of this machine is measured."""

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
        near = get_close_matches(wanted, names, n=1)
        hint = f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(PEAK_TFLOPS)} and {THIS_DEVICE}"
        raise InputError(f"--hardware is {hardware}; {hint} (for any other device give --flops)")
    speeds = PEAK_TFLOPS[names[wanted]]
    if precision not in speeds:
        raise InputError(
            f"--precision is {precision}, which {names[wanted]} cannot multiply; it must be {' or '.join(speeds)}"
        )
    return speeds[precision] * 1e12


def measure_flops(precision: Precision, *, seconds: float = 0.3) -> float:
    """Floating-point operations a second of products of large matrices on this machine: the best of several."""
    import torch

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


TOKENS_PER_PARAMETER = 20
"""Tokens of training data a parameter where both are best for their compute: what approaches 1 and 2 of Hoffmann et al.
(2022, arXiv 2203.15556, section 3) come to, and what their model Chinchilla had (70 billion, 1.4 trillion)."""


@dataclass(frozen=True)
class ScalingLaw:
    """L(N, D) = E + A / N^alpha + B / D^beta, the loss of a decoder-only model that never sees a text twice.

    Approach 3 of Hoffmann et al. (2022, equation 2). With C = 6 N D, the loss is least (equation 4) at

        N = G (C / 6)^(beta / (alpha + beta))    D = C / (6 N)    G = (alpha A / (beta B))^(1 / (alpha + beta))
    """

    irreducible: float
    """E, in nats a token."""

    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """L, in nats a token of the data and the tokenizer of the fit."""
        return self.irreducible + self.a / parameters**self.alpha + self.b / tokens**self.beta

    def optimum(self, compute: float) -> tuple[float, float]:
        """The N and the D of least loss for C floating-point operations."""
        parameters = self._scale * (compute / 6) ** (self.beta / (self.alpha + self.beta))
        return parameters, compute / (6 * parameters)

    def optimal_tokens(self, parameters: float) -> float:
        """The D for which N parameters are best: what is left of C = 6 N D when `optimum` is solved for it."""
        return (parameters / self._scale) ** ((self.alpha + self.beta) / self.beta) / parameters

    @property
    def _scale(self) -> float:
        """G."""
        return (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))


CHINCHILLA = ScalingLaw(irreducible=1.8172, a=482.01, b=2085.43, alpha=0.3478, beta=0.3658)
"""The law with the constants of Besiroglu et al. (2024, arXiv 2404.10102), who fitted it again to the runs of Hoffmann
et al. (2022): the constants published there (1.69, 406.4, 410.7, 0.34, 0.28) fit those runs badly and contradict the
paper's own approaches 1 and 2."""


def rule_of_thumb(compute: float) -> tuple[float, float]:
    """N and D of C = 6 N D with `TOKENS_PER_PARAMETER`."""
    parameters = (compute / (6 * TOKENS_PER_PARAMETER)) ** 0.5
    return parameters, TOKENS_PER_PARAMETER * parameters


def training_hours(compute: float, peak: float, utilisation: float, num_devices: int) -> float:
    """Hours for C floating-point operations on devices that reach a share of their peak speed.

    The share is the model FLOPs utilisation of Chowdhery et al. (2022, arXiv 2204.02311, appendix B) unless C counts
    what gradient checkpointing computes again; then it is their hardware FLOPs utilisation.
    """
    return compute / (peak * utilisation * num_devices) / 3600
