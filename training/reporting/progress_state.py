"""What the training loop itself has to remember from step to step: saved in every checkpoint."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepTotals:
    """Counts of one step's batches over all processes."""

    labels: float
    positions: float
    padding: float
    flops: float
    stops: float
    """More than 0 if a process has been asked to stop."""


@dataclass
class Window:
    """Sums over the steps since the last line of metrics.jsonl, over all processes; without those left out."""

    loss: float = 0.0
    """Of the mean losses of the steps, in nats a token."""

    steps: int = 0
    """Those that are summed up here."""

    labels: int = 0
    """Tokens that were predicted."""

    positions: int = 0
    """Positions of the batches on both sides, padding included."""

    padding: int = 0
    flops: float = 0.0
    """Floating-point operations of the model, forward and backward."""

    seconds: float = 0.0


@dataclass
class ProgressState:
    """How far a run has come."""

    step: int = 0
    seconds: float = 0.0
    """Time of training, without validation and interruptions."""

    flops: float = 0.0
    """Floating-point operations of the model so far."""

    joules: float | None = 0.0
    """Energy of training so far; None once there was a part of which it is not known."""

    scores: dict[int, dict[str, float]] = field(default_factory=dict)
    """Validation scores by step."""

    window: Window = field(default_factory=Window)

    def count(self, loss: float, totals: StepTotals) -> None:
        """Adds a step that has changed the weights.

        Args:
            loss: its mean, in nats a token.
            totals: of its batches.
        """
        window = self.window
        window.loss += loss
        window.steps += 1
        window.labels += int(totals.labels)
        window.positions += int(totals.positions)
        window.padding += int(totals.padding)
        window.flops += totals.flops
        self.flops += totals.flops

    def state_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self) | {"scores": [list(item) for item in self.scores.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over a saved state."""
        vars(self).update(state)
        self.scores = dict(state["scores"])
        self.window = Window(**state["window"])
