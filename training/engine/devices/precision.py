"""The precision of matrix products: float32, bfloat16, float16 with a scaled loss, or TensorFloat-32.

Weights, gradients and the optimizer's state are float32 whichever it is.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from ...console.input_error import InputError
from .cpu_attention import SDPA_FLOAT32

PrecisionName = Literal["no", "bf16", "fp16", "tf32"]

AMPERE = (8, 0)
"""CUDA's compute capability of the first NVIDIA GPUs with TensorFloat-32."""


class Precision:
    """Computes forward and backward passes in a precision, and takes the optimizers' steps.

    In fp16 the loss is scaled, so that small gradients do not vanish (Micikevicius et al. 2017, arXiv 1710.03740,
    section 3.2). Where a gradient overflows, the step is left out by all optimizers and the scale halved; after 2,000
    steps without, it doubles. All processes come to the same decision: with data parallelism their gradients are equal,
    and of sharded ones (DTensors) torch takes the maximum over the mesh of what its check has found.

    Args:
        name: as the recipe has it.
        device: where the model is.

    Raises:
        InputError: if the device cannot compute so.
    """

    def __init__(self, name: PrecisionName, device: torch.device):
        _check_device(name, device)
        self.name, self.device = name, device
        self._scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")
        self._together: Any = None  # the optimizers between `unscale` and `step`, a `_Together`

    @property
    def may_overflow(self) -> bool:
        """Whether a gradient that is not finite may be the scale's fault, which `step` then lowers."""
        return self._scaler.is_enabled() and self._scaler.get_scale() > 1

    def prepare(self, model: PreTrainedModel) -> None:
        """Keeps attention in float32 on a CPU, where less is slower (see `cpu_attention`)."""
        on_cpu = self.device.type == "cpu" and self.name in ("bf16", "fp16")
        if on_cpu:  # its RMSNorm warns that no fused kernel takes float32 weights; it has none for other weights either
            warnings.filterwarnings("ignore", "Mismatch dtype between input and weight", UserWarning)
        if on_cpu and model.config._attn_implementation == "sdpa":
            model.set_attn_implementation(SDPA_FLOAT32)

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """A context for forward passes."""
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.name)
        with self._matmul_precision(), torch.autocast(self.device.type, dtype, enabled=dtype is not None):
            yield

    def backward(self, loss: torch.Tensor) -> None:
        """Adds the gradients of a loss, a scalar, to those there are; in fp16 they are scaled until `unscale`."""
        with self._matmul_precision():
            self._scaler.scale(loss).backward()

    def unscale(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Takes the scale off the gradients, once a step, before anything looks at them."""
        self._together = _Together(optimizers)
        self._scaler.unscale_(self._together)

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> bool:
        """Lets all optimizers take their step after `unscale`, or in fp16 none of them if a gradient overflowed.

        Returns:
            Whether they did.
        """
        together: Any = self._together or _Together(optimizers)
        has_stepped = bool(self._scaler.step(together))
        self._scaler.update()
        self._together = None
        return has_stepped

    def skip(self) -> None:
        """Leaves out a step after `unscale` for another reason than the scale, which stays as it is."""
        self._scaler.update(self._scaler.get_scale())
        self._together = None

    def state_dict(self) -> dict[str, Any]:
        """The scale and for how long it has been right; empty but in fp16."""
        return self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up a saved state; that of a run in another precision is empty and changes nothing."""
        if state:
            self._scaler.load_state_dict(state)

    @contextmanager
    def _matmul_precision(self) -> Iterator[None]:
        """TensorFloat-32, if asked for. The setting is the process's, so that it lasts no longer than it must."""
        if self.name != "tf32":
            yield
            return
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


class _Together:
    """Several optimizers as one, as far as a scaler asks: it checks all their gradients before any takes a step."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]):
        self.optimizers = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    def step(self) -> bool:
        """Lets all take their step; the answer tells it from a step that the scaler leaves out, which has none."""
        for optimizer in self.optimizers:
            optimizer.step()
        return True


def _check_device(name: PrecisionName, device: torch.device) -> None:
    """Raises InputError if the device cannot compute so."""
    is_cuda = device.type == "cuda"
    if name == "tf32" and not (
        is_cuda and torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= AMPERE
    ):
        raise InputError(
            "optimization.mixed_precision is tf32; it needs an NVIDIA GPU of the Ampere generation or newer"
        )
    if name == "bf16" and is_cuda:
        with torch.cuda.device(device):
            is_supported = torch.cuda.is_bf16_supported(including_emulation=False)
        if not is_supported:
            raise InputError(
                f"optimization.mixed_precision is bf16, which {torch.cuda.get_device_name(device)} does not compute "
                "in; use fp16 or no"
            )
