"""Schedule-free AdamW: an average of the weights in place of a learning rate that decays.

Ours, because the authors' package (`schedulefree`) turns the weights into their average and back in place, which
rounds, and counts its steps among its options: a run that validates or resumes would not be the same to the bit.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor


class ScheduleFreeAdamW(torch.optim.Optimizer):
    """Defazio et al. 2024, arXiv 2405.15682, algorithm 1.

    Three sequences: z takes AdamW's steps without its momentum, x is the mean of all z, each weighted by the square of
    its step's learning rate, and gradients are taken between them, at y = (1 - beta1) z + beta1 x.

    The parameters are y. For use and validation are the averages x (`find_averages`), which are not kept: beside y
    there are z and the mean of squared gradients, as much memory as AdamW takes. Gradients are overwritten by a step.
    Parameters may be DTensors.

    Args:
        parameters: groups, with a weight decay each.
        lr: learning rate, to be set before each step; it warms up, and does not decay.
        betas: beta1, greater than 0, and the decay of the mean of squared gradients.
        eps: added to the root of the mean of squares.
        weight_decay: where a group says none; of y.
    """

    def __init__(
        self,
        parameters: Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.0,
    ):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Moves all parameters that have a gradient.

        Args:
            closure: none; it is there because every optimizer of torch takes one.
        """
        for group in self.param_groups:
            together: dict[tuple[Any, ...], list[torch.Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p] or self._begin(p)
                    # Plain numbers, of which a checkpoint rounds none.
                    state["step"] += group["lr"] > 0
                    state["weight_sum"] += group["lr"] ** 2
                    together[state["step"], state["weight_sum"], isinstance(p, DTensor)].append(p)
            for (step, weight_sum, _), parameters in together.items():
                self._move(parameters, step, weight_sum, group)

    def _begin(self, p: torch.Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        state |= {"z": p.detach().clone(), "exp_avg_sq": torch.zeros_like(p), "step": 0, "weight_sum": 0.0}
        return state

    def _move(self, y: list[torch.Tensor], step: int, weight_sum: float, group: Mapping[str, Any]) -> None:
        """One step of parameters that have taken equally many, and have the same weights in their averages."""
        rate, (beta1, beta2) = group["lr"], group["betas"]
        share = rate**2 / weight_sum if weight_sum > 0 else 0.0  # of this step in the averages
        updates = [p.grad for p in y if p.grad is not None]
        z, squares = ([self.state[p][name] for p in y] for name in ("z", "exp_avg_sq"))
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, updates, updates, value=1 - beta2)
        roots = torch._foreach_div(squares, 1 - beta2 ** max(1, step))
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_div_(updates, roots)
        if group["weight_decay"] != 0:
            torch._foreach_add_(updates, y, alpha=group["weight_decay"])
        # With x put in, y moves by: y <- (1 - share) y + share z - rate (1 - beta1 (1 - share)) update.
        torch._foreach_lerp_(y, z, weight=share)
        torch._foreach_add_(y, updates, alpha=-rate * (1 - beta1 * (1 - share)))
        torch._foreach_sub_(z, updates, alpha=rate)

    @torch.no_grad()
    def find_averages(self) -> dict[torch.Tensor, torch.Tensor]:
        """The averages x by their parameters y: x = z + (y - z) / beta1. A parameter that has not moved is its own."""
        return {
            p: torch.lerp(self.state[p]["z"], p, 1 / group["betas"][0]) if self.state.get(p) else p.detach()
            for group in self.param_groups
            for p in group["params"]
        }
