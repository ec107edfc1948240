"""What a person sees of a training run: a bar with the time left, and under it two lines with the figures.

Where standard error is not a terminal, the same figures are printed as one plain line twice a minute.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..console.progress import ProgressBar, is_first_process

SMOOTHING = 0.9
"""What the smoothed loss keeps of itself at each record: it is a mean over the last ten or so."""


class TrainingDisplay:
    """The live display of a training run, a context manager. Only the first process shows anything.

    Lines of `say` appear above it and bars of validation below it.

    Args:
        max_steps: steps of the whole run.
        initial_step: steps that were done before this process was started.
    """

    def __init__(self, max_steps: int, initial_step: int):
        self._record: dict[str, Any] = {}
        self._scores: dict[str, float] = {}
        self._loss = _SmoothedLoss()
        in_terminal = sys.stderr.isatty()
        self._bar = ProgressBar(
            total=max_steps,
            initial=initial_step,
            desc="train",
            unit=" step",
            leave=True,
            smoothing=0,  # by the mean speed, so that what validations have taken tells what they will take
            miniters=1,
            **({"delay": 0} if in_terminal else {}),
        )
        disable = not (in_terminal and is_first_process())
        self._lines = [_StatusLine(disable), _StatusLine(disable)]

    def __enter__(self) -> "TrainingDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        for line in reversed(self._lines):
            line.close()
        self._bar.close()

    def step(self) -> None:
        """Counts a step that is done."""
        self._bar.update()
        for line in self._lines:
            line.update(0)  # drawn as often as the bar, not at each step

    def go_back(self, step: int) -> None:
        """Sets the count back to an earlier step: the steps since then are to be done again."""
        if not self._bar.disable:  # on other processes than the first it has no `initial`
            self._bar.initial = min(self._bar.initial, step)
            self._bar.update(step - self._bar.n)

    def figures(self, record: Mapping[str, Any]) -> None:
        """Takes up a record of metrics.jsonl; those that have neither training figures nor scores change nothing.

        A resumed run shows where it was, smoothed loss included, if the last records of before are given first.
        """
        if "validation" in record:
            self.validated(record["validation"])
        elif "loss" in record:
            # null is what is not finite; without a loss, every step of the line was left out.
            self._record = {name: value for name, value in record.items() if value is not None}
            self._loss.add(record["loss"])
            self._show()

    def validated(self, scores: Mapping[str, float | None]) -> None:
        """Takes up the scores of a validation, which stay until the next ones; None, not finite, is not shown."""
        self._scores = {name: score for name, score in scores.items() if score is not None}
        self._show()

    def _show(self) -> None:
        first, second = self._training_figures(), self._other_figures()
        for line, shown in zip(self._lines, (first, second), strict=True):
            line.figures = shown
        if not self._bar.in_terminal:
            self._bar.set_postfix_str(", ".join(first + second), refresh=False)

    def _training_figures(self) -> list[str]:
        record = self._record
        shown = []
        if "loss" in record:
            shown += [f"loss {record['loss']:.3f}", f"smoothed {self._loss.mean:.3f}"]
        if (speed := record.get("tokens_per_second")) is not None:
            shown.append(f"{speed:,.0f} tok/s")
        if (rate := record.get("learning_rate")) is not None:
            shown.append(f"learning rate {rate:.3g}")
        if (norm := record.get("gradient_norm")) is not None:
            shown.append(f"gradient norm {norm:.3g}")
        return shown

    def _other_figures(self) -> list[str]:
        record = self._record
        shown = [f"validation {name} {score:.3f}" for name, score in self._scores.items()]
        if (memory := record.get("memory")) is not None:
            shown.append(f"memory {readable_bytes(memory)}")
        if (padding := record.get("padding")) is not None:
            shown.append(f"padding {padding:.1%}")
        if (utilisation := record.get("utilisation")) is not None:
            shown.append(f"utilisation {utilisation:.0%}")
        return shown


class _SmoothedLoss:
    """Exponential moving average, corrected for its start as Adam's are (Kingma and Ba 2014, section 3)."""

    def __init__(self) -> None:
        self.sum = self.weight = 0.0

    def add(self, loss: float | None) -> None:
        if loss is not None and math.isfinite(loss):  # one NaN would stay in it for ever
            self.sum = SMOOTHING * self.sum + (1 - SMOOTHING) * loss
            self.weight = SMOOTHING * self.weight + (1 - SMOOTHING)

    @property
    def mean(self) -> float:
        return self.sum / self.weight if self.weight else math.nan


class _StatusLine(ProgressBar):
    """A line under the bar: as many of its figures as the terminal is wide, the first ones first."""

    def __init__(self, disable: bool):
        self.figures: Sequence[str] = ()
        super().__init__(disable=disable, delay=0)

    def __str__(self) -> str:
        width = self.format_dict["ncols"] or 80
        line = ""
        for figure in self.figures:
            longer = f"{line}, {figure}" if line else figure
            if len(longer) > width:
                break
            line = longer
        return line


def readable_bytes(count: float) -> str:
    """A size in powers of 1000: `1.2 GB`, `345 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if count >= 99.95 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
