"""An exponential moving average of the weights, to validate and to save instead of the last ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from .devices.sharding import forget_gathered


class ExponentialMovingAverage:
    """Averages in float32 of all that is trained, beside the weights themselves; of tied weights there is one.

    After step n the average moves by 1 - min(decay, (1 + n) / (10 + n)) of the way to the weights, so that it forgets
    the random start soon (the rule of TensorFlow's `ExponentialMovingAverage`).

    Args:
        model: whose weights are averaged. They may be DTensors, sharded over processes: so are the averages then.
        decay: how much of the average stays at each step, once it has warmed up.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.model, self.decay = model, decay
        # Kept, because a sharded model puts other tensors in their place while it computes.
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.restart()

    def restart(self) -> None:
        """Takes the weights as they are for the averages."""
        self.averages = {name: p.detach().to(torch.float32, copy=True) for name, p in self.parameters.items()}

    def update(self, step: int) -> None:
        """Takes in the weights after a step, which is counted from 1."""
        move = get_ema_multi_avg_fn(min(self.decay, (1 + step) / (10 + step)))
        move(list(self.averages.values()), [p.detach().float() for p in self.parameters.values()], None)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A context in which the model has the averages for weights; afterwards it has its own again, to the bit."""
        own = {name: p.detach().clone() for name, p in self.parameters.items()}
        try:
            self._put(self.averages)
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, weights: Mapping[str, torch.Tensor]) -> None:
        for name, p in self.parameters.items():
            p.copy_(weights[name])
        forget_gathered(self.model)
