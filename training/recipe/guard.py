"""What a run does when its loss explodes."""

from dataclasses import dataclass
from typing import Literal

from .checks import check_at_least, check_positive


@dataclass(kw_only=True)
class Guard:
    """Loss spikes, and gradients that are not finite."""

    non_finite: Literal["stop", "skip", "roll_back"] = "stop"
    """When a loss or gradient is NaN or infinite: stop before the step, skip the step, or roll_back to the last
    checkpoint and go on with the batches that follow (Chowdhery et al. 2022, arXiv 2204.02311, section 5.1)."""

    spike: Literal["ignore", "warn", "skip", "roll_back", "stop"] = "warn"
    """When a step's loss is far above those of the last `window` steps."""

    spike_threshold: float = 6.0
    """How far: this many standard deviations above their mean, and spike_rise at least."""

    spike_rise: float = 1.0
    """Nats a token above the mean that a spike has at least: batches of one length, or of one kind of text, are not all
    alike."""

    window: int = 100
    """Steps by which a loss is judged; before there are as many, none is a spike."""

    max_interventions: int = 10
    """Stop after that many skipped steps and roll-backs within `window` steps: something else is wrong."""

    def __post_init__(self) -> None:
        check_positive(self, "spike_threshold", "spike_rise")
        check_at_least(self, 8, "window")
        check_at_least(self, 1, "max_interventions")
