"""When a run saves its state, and what it keeps."""

from dataclasses import dataclass

from .checks import check_at_least


@dataclass(kw_only=True)
class Checkpoints:
    """What a run can be resumed from."""

    every_steps: int | None = None
    """Save a checkpoint every that many steps; one is saved at each validation as well."""

    keep_last: int = 2
    """How many of the newest stay: a damaged one is replaced by the one before it."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "every_steps", "keep_last")
