"""Norms of a gradient, clipping, and what to say of one that is not finite."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class GradientNorms:
    """Euclidean norms of one step's gradient, summed over all its batches and processes, before clipping."""

    total: float
    names: list[str]
    """The parameters, in the order of `parameters`."""

    parameters: torch.Tensor
    """The norm of each parameter's gradient, (N,), still on its device."""

    @property
    def is_finite(self) -> bool:
        """Whether no gradient has a NaN or an infinity."""
        return math.isfinite(self.total)

    def by_layer(self) -> dict[str, float]:
        """The norm of each block's gradient, and of each module's outside the blocks: `encoder.layers.0`, `norm`."""
        squares: dict[str, float] = {}
        for name, norm in zip(self.names, self.parameters.tolist(), strict=True):
            block = re.match(r".*?\blayers\.\d+", name)
            layer = (block[0] if block else name.rpartition(".")[0]).removeprefix("model.")
            squares[layer] = squares.get(layer, 0.0) + norm**2
        return {layer: math.sqrt(square) for layer, square in squares.items()}

    def conspicuous_parameter(self) -> str:
        """The first parameter whose gradient is not finite, or else that of the largest gradient."""
        if not self.names:
            return "none"
        norms = self.parameters.tolist()
        bad = [name for name, norm in zip(self.names, norms, strict=True) if not math.isfinite(norm)]
        return bad[0] if bad else self.names[max(range(len(norms)), key=norms.__getitem__)]


def gradient_norms(parameters: Mapping[str, torch.nn.Parameter]) -> GradientNorms:
    """The norms of the gradients that parameters, by their names, hold, be they whole or sharded over processes."""
    found = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    gradients = list(found.values())
    # One pass over the gradients gives the norms of the parameters, and they give the total.
    norms = torch.stack(torch._foreach_norm(gradients))  # (N,)
    if isinstance(norms, DTensor):
        norms = norms.full_tensor()
    return GradientNorms(float(torch.linalg.vector_norm(norms)), list(found), norms)


def clip_gradients(parameters: Iterable[torch.nn.Parameter], norms: GradientNorms, max_norm: float) -> None:
    """Scales the gradient down to a norm, if it is longer (Pascanu et al. 2013, arXiv 1211.5063)."""
    if norms.total > max_norm:  # torch would multiply by 1
        total = torch.tensor(norms.total, device=norms.parameters.device)
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total)
