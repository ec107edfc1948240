"""The guard of the loss: notices spikes and values that are not finite, and says what the recipe wants done.

Loss spikes are ordinary in large runs. Chowdhery et al. (2022, arXiv 2204.02311, section 5.1) went back to a checkpoint
and left the batches around the spike out, which is `roll_back` here.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..recipe.guard import Guard


class TrainingDivergedError(RuntimeError):
    """The loss or the gradient has exploded, and the recipe says to stop; the weights of the step before are sound."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a step, and what to do about it."""

    event: str
    """`spike` or `non_finite`."""

    action: str
    """`warn`, `skip`, `roll_back` or `stop`."""

    reason: str

    def in_words(self, batch: Mapping[str, int], parameter: str) -> str:
        """What was found, and where.

        Args:
            batch: position of the step's first batch in the data.
            parameter: whose gradient stands out.
        """
        pool = f", pool {batch['pool']}" if batch["pool"] else ""
        return f"{self.reason}, at batch {batch['index']} of epoch {batch['epoch']}{pool} and most in {parameter}"


class LossGuard:
    """Judges each step by its loss and the norm of its gradient, before the weights are touched.

    A loss is a spike if it exceeds the mean of the last `window` sound losses by `spike_threshold` standard deviations
    and by `spike_rise`.

    Args:
        options: what to do, and what counts as a spike.
    """

    def __init__(self, options: Guard):
        self.options = options
        self.losses: deque[float] = deque(maxlen=options.window)
        self.interventions: list[int] = []

    def judge(self, step: int, loss: float, gradient_norm: float) -> Verdict | None:
        """What to do about a step; None if it is sound.

        Args:
            step: number of the step.
            loss: mean over all labels of the step, in nats.
            gradient_norm: of the whole gradient, before clipping.
        """
        if math.isfinite(loss) and math.isfinite(gradient_norm):
            limit = self._highest_sound_loss()
            if loss <= limit or self.options.spike == "ignore":
                self.losses.append(loss)
                return None
            reason = f"loss {loss:.3f} is above {limit:.3f}, far from the mean of the last {len(self.losses)} steps"
            event, action = "spike", self.options.spike
            if action == "warn":  # the weights will follow this loss: it belongs to what is normal
                self.losses.append(loss)
        else:
            what = "loss" if not math.isfinite(loss) else "gradient"
            reason, event, action = f"the {what} is not finite", "non_finite", self.options.non_finite
        if action in ("skip", "roll_back"):
            self.interventions = [earlier for earlier in self.interventions if step - earlier < self.options.window]
            self.interventions.append(step)
            if len(self.interventions) > self.options.max_interventions:
                action = "stop"
                reason += (
                    f", and there were {self.options.max_interventions} interventions within {self.options.window}"
                )
                reason += " steps"
        return Verdict(event, action, reason)

    def _highest_sound_loss(self) -> float:
        if len(self.losses) < self.options.window:
            return math.inf
        losses = np.array(self.losses)
        mean, deviation = float(losses.mean()), float(losses.std(ddof=1))
        return mean + max(self.options.spike_threshold * deviation, self.options.spike_rise)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run has to know."""
        return {"losses": list(self.losses), "interventions": list(self.interventions)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a saved state; of a longer window the last losses count."""
        self.losses.extend(state["losses"])
        self.interventions = list(state["interventions"])
