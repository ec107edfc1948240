"""The mean of the weights of several checkpoints (Vaswani et al. 2017, section 6.1)."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...console.input_error import InputError


def mean_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """The element-wise mean of weights, each summed in float64 and rounded once, to its type in the first file.

    One tensor of each file is in memory at a time. The mean of equal weights is these weights, bit by bit.

    Args:
        files: of one model or more, as safetensors; tied weights are in a file once, and so in the result.

    Raises:
        InputError: if a file cannot be read, or if it differs from the first in the name or the shape of a weight.
    """
    with ExitStack() as stack:
        opened = [(file, stack.enter_context(_open(file))) for file in files]
        (first, weights), *others = opened
        names = sorted(weights.keys())
        for file, other in others:
            if different := sorted({*names} ^ {*other.keys()}):
                has, lacks = (first, file) if different[0] in names else (file, first)
                raise InputError(
                    f"{has} has a weight {different[0]}, and {lacks} has not; they are of different models"
                )
            for name in names:
                shape, own = (tuple(part.get_slice(name).get_shape()) for part in (weights, other))
                if shape != own:
                    raise InputError(f"{name} is {shape} in {first} and {own} in {file}; they are of different models")
        return {name: _mean([file.get_tensor(name) for _, file in opened]) for name in names}


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(tensors[0], dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(tensors[0].dtype)


def _open(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file} holds no weights that can be read: {str(error).splitlines()[0]}") from error
