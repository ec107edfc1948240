"""What is written down of a run: metrics.jsonl always, the live display, and the trackers that the recipe names."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from accelerate import Accelerator

from ..console.progress import say
from ..evaluation.metrics import Score
from ..run_folder import RunFolder
from .display import TrainingDisplay
from .energy import EnergyMeter
from .progress_state import ProgressState, Window
from .trackers import track

LOG_EVERY = 20  # steps between lines of metrics.jsonl
STEPS_TO_JUDGE_BY = 10  # steps after which the time that is left is known
MANY_HOURS = 3
LINES_REMEMBERED = 50  # lines that the display of a resumed run begins with


class Recorder:
    """Takes down the figures of each step, and makes a line of metrics.jsonl of every `LOG_EVERY` of them.

    A context manager while training. Every process has one, and the first writes.

    Args:
        accelerator: for the trackers, the device and the number of processes.
        folder: of the run.
        progress: the sums since the last line, and the time and energy so far.
        max_steps: of the run.
        peak_flops: floating-point operations a second that one device could do; None if that is not known.
        energy: the meter of this host, in the first process.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        folder: RunFolder,
        progress: ProgressState,
        max_steps: int,
        peak_flops: float | None,
        energy: EnergyMeter | None,
    ):
        self.accelerator, self.folder, self.progress = accelerator, folder, progress
        self.peak_flops, self.energy = peak_flops, energy
        self.max_steps, self.first_step, self.first_seconds = max_steps, progress.step, progress.seconds
        self.display = TrainingDisplay(max_steps, progress.step)
        for record in folder.metrics()[-LINES_REMEMBERED:]:
            self.display.figures(record)

    def __enter__(self) -> "Recorder":
        self.display.__enter__()
        self._start_clock()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.display.__exit__(*exception)
        if self.energy is not None:  # only now it is known whether the counters could be read to the end
            self.folder.log({"step": self.progress.step, "energy": self.energy.source})

    def step_done(self, learning_rate: float, gradient_norm: float, by_layer: Callable[[], dict[str, float]]) -> None:
        """Counts the time of a step, and writes a line if it is time for one.

        Args:
            learning_rate, gradient_norm: of the step, the norm before clipping.
            by_layer: gives the gradient norm of each layer; called only where a line is written.
        """
        self._stop_clock()
        self._start_clock()
        if self.progress.step == self.first_step + STEPS_TO_JUDGE_BY:
            self._warn_of_hours()
        if self.progress.step % LOG_EVERY == 0:
            self._write(self._line(learning_rate, gradient_norm, by_layer()))
            self.progress.window = Window()
        self.display.step()

    def _warn_of_hours(self) -> None:
        """Says so if the rest will take hours: whoever did not mean that should not find out in the evening."""
        seconds = (self.progress.seconds - self.first_seconds) / STEPS_TO_JUDGE_BY
        left = self.max_steps - self.progress.step
        if (hours := left * seconds / 3600) > MANY_HOURS:
            say(
                f"note: at this speed the {left:,} steps that are left take {hours:,.0f} hours; a smaller model "
                "(--model.hidden_size, fewer layers) is faster, --optimization.max_steps sets how many steps there are"
            )

    def validated(self, scores: Sequence[Score]) -> None:
        """Writes the scores of a validation."""
        step, seconds = self.progress.step, self.progress.seconds
        self._write(
            {
                "step": step,
                "validation": {score.metric.name: score.value for score in scores},
                "seconds": round(seconds, 1),
            }
        )
        shown = ", ".join(f"{score.metric.name} {score.value:.3f}" for score in scores)
        say(f"step {step:,}: validation {shown} ({seconds / 60:.1f} min)")

    def sampled(self, samples: list[list[str]]) -> None:
        """Writes sample outputs, and shows the last text of each: what the model put out."""
        self.folder.log_samples({"step": self.progress.step, "samples": samples})
        for sample in samples:
            say("    " + " → ".join(" ".join(text.split()) for text in (sample[0], sample[-1])))

    def event(self, at_step: int, found: Mapping[str, Any], in_words: str) -> None:
        """Writes what the guard found (`event`, `action`, `reason`, `batch`, `parameter`), and says so."""
        self.display.go_back(self.progress.step)
        # After a roll-back, `step` is an earlier one.
        self._write({"step": self.progress.step, "at_step": at_step, **found})
        say(f"step {at_step:,}: {in_words}: {found['action']}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A context whose time does not count as training."""
        self._stop_clock()
        yield
        self._start_clock()

    def _start_clock(self) -> None:
        self.started = time.perf_counter()
        if self.energy is not None:
            self.energy.start()

    def _stop_clock(self) -> None:
        seconds, progress = time.perf_counter() - self.started, self.progress
        progress.seconds += seconds
        progress.window.seconds += seconds
        joules = self.energy.joules() if self.energy is not None else None
        progress.joules = None if joules is None or progress.joules is None else progress.joules + joules

    def _line(self, learning_rate: float, gradient_norm: float, by_layer: dict[str, float]) -> dict[str, Any]:
        window, devices = self.progress.window, self.accelerator.num_processes
        utilisation = None
        if self.peak_flops:
            utilisation = window.flops / (window.seconds * self.peak_flops * devices)
        return {
            "step": self.progress.step,
            "loss": window.loss / window.steps if window.steps else None,
            "learning_rate": learning_rate,
            "gradient_norm": gradient_norm,
            "gradient_norm_by_layer": by_layer,
            "tokens_per_second": round(window.labels / window.seconds, 1),
            "padding": window.padding / max(1, window.positions),
            "memory": _memory(self.accelerator.device),
            "flops": window.flops,
            "utilisation": utilisation,
            "joules": self.progress.joules,
            "seconds": round(self.progress.seconds, 1),
        }

    def _write(self, record: dict[str, Any]) -> None:
        self.display.figures(record)
        if self.accelerator.is_main_process:
            self.folder.log(record)
            track(self.accelerator, record)


def _memory(device: torch.device) -> int:
    """Bytes: the peak of what torch holds of a GPU, or what the process has resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    resident: int = psutil.Process().memory_info().rss
    return resident
