"""Averages of the weights, to validate and to save instead of the last ones."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from .devices.sharding import forget_gathered
from .schedule_free import ScheduleFreeAdamW


class WeightAverage(ABC):
    """An average of all that is trained; of tied weights there is one.

    Args:
        model: whose weights are averaged. They may be DTensors, sharded over processes: so are the averages then.
    """

    def __init__(self, model: nn.Module):
        self.model = model
        # Kept, because a sharded model puts other tensors in their place while it computes.
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}

    @abstractmethod
    def find_averages(self) -> Mapping[str, torch.Tensor]:
        """The averages, by the names of the parameters."""

    @abstractmethod
    def restart(self) -> None:
        """Takes the weights as they are for the averages."""

    @abstractmethod
    def update(self, step: int) -> None:
        """Takes in the weights after a step, which is counted from 1."""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A context in which the model has the averages for weights; afterwards it has its own again, to the bit."""
        averages = self.find_averages()  # which may depend on the weights
        own = {name: p.detach().clone() for name, p in self.parameters.items()}
        try:
            self._put(averages)
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, weights: Mapping[str, torch.Tensor]) -> None:
        for name, p in self.parameters.items():
            p.copy_(weights[name])
        forget_gathered(self.model)


class ExponentialMovingAverage(WeightAverage):
    """Averages in float32, beside the weights themselves.

    After step n the average moves by 1 - min(decay, (1 + n) / (10 + n)) of the way to the weights, so that it forgets
    the random start soon (the rule of TensorFlow's `ExponentialMovingAverage`).

    Args:
        model: as `WeightAverage` takes it.
        decay: how much of the average stays at each step, once it has warmed up.
    """

    def __init__(self, model: nn.Module, decay: float):
        super().__init__(model)
        self.decay = decay
        self.restart()

    def find_averages(self) -> Mapping[str, torch.Tensor]:
        return self.averages

    def restart(self) -> None:
        self.averages = {name: p.detach().to(torch.float32, copy=True) for name, p in self.parameters.items()}

    def update(self, step: int) -> None:
        move = get_ema_multi_avg_fn(min(self.decay, (1 + step) / (10 + step)))
        move(list(self.averages.values()), [p.detach().float() for p in self.parameters.values()], None)


class ScheduleFreeAverage(WeightAverage):
    """The averages of a schedule-free optimizer, which follow from the weights and its state: nothing more is kept.

    Args:
        model: as `WeightAverage` takes it.
        optimizer: that trains it.
    """

    def __init__(self, model: nn.Module, optimizer: ScheduleFreeAdamW):
        super().__init__(model)
        self.optimizer = optimizer

    def find_averages(self) -> Mapping[str, torch.Tensor]:
        averages = self.optimizer.find_averages()
        return {name: averages[p] for name, p in self.parameters.items()}

    def restart(self) -> None:
        """Nothing: the optimizer's state says what they are."""

    def update(self, step: int) -> None:
        """Nothing: the optimizer's step has."""


def make_average(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], ema_decay: float
) -> WeightAverage | None:
    """The average that is validated and saved; None where that is the weights themselves.

    Args:
        model: what is trained.
        optimizers: by which; one may average by itself.
        ema_decay: of a moving average; 0 keeps none.
    """
    for optimizer in optimizers:
        if isinstance(optimizer, ScheduleFreeAdamW):
            return ScheduleFreeAverage(model, optimizer)
    return ExponentialMovingAverage(model, ema_decay) if ema_decay > 0 else None
