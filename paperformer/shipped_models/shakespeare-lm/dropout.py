"""Dropout (Srivastava et al. 2014), the regulariser of Vaswani et al. (2017), section 5.4.

On a CPU torch draws dropout's mask in one thread, with a branch for each element: 6 ns an element for p = 0.1,
10 ns for p = 0.3, up to a tenth of the training step of a small model. Here four elements share one draw, without a
branch, and forward and backward together take a third of the time.
"""

import torch
from torch import Tensor, nn

LANES = 4  # 16-bit numbers in one 64-bit draw
LEVELS = 2**16  # values of a 16-bit number


class Dropout(nn.Dropout):
    """Zeroes elements with probability p while training and scales the others by 1 / (1 - p).

    On a CPU p is rounded to a multiple of 1/65536, and the scale follows the rounded p, so the expected
    output is the input. The randomness is that of torch's generator, hence `torch.manual_seed` and gradient
    checkpointing work as ever; only, the elements dropped are not those `nn.Dropout` would drop. On
    accelerators and under torch.compile, where dropout is fused, this IS `nn.Dropout`.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name in nn.Dropout
        if not self.training or self.p == 0:
            return input
        # Subclasses of Tensor (sharded, fake) may not know the operations below.
        on_cpu = type(input) is Tensor and input.device.type == "cpu" and not torch.compiler.is_compiling()
        if self.inplace or not on_cpu or self.p >= 1:
            return super().forward(input)
        dropped = min(round(self.p * LEVELS), LEVELS - 1)  # how many of a lane's values mean "drop"
        mask = torch.empty_like(input)
        torch.ge(_random_int16(input.shape), dropped - LEVELS // 2, out=mask)
        return input * mask.mul_(LEVELS / (LEVELS - dropped))


def _random_int16(shape: torch.Size) -> Tensor:
    """Uniform over all 65536 values; int64 is the widest type that torch's generator fills in one draw."""
    num_draws = -(-shape.numel() // LANES)  # rounded up
    draws = torch.empty(num_draws, dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    return draws.view(torch.int16)[: shape.numel()].view(shape)
