"""The training loop: the same for every family, on a CPU, a GPU, or several.

What a task must bring is the protocol `Task`. A step is in `step`, all that it changes in `training_state`; what is
done around steps (validation, checkpoints, stopping, choosing the final weights) is here. Steps are counted from 1, and
all that differs from step to step follows from the step's number, the position in the data and the states of the random
number generators: that is what makes resuming exact.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from transformers import PreTrainedModel

from ..console.input_error import InputError
from ..console.progress import say
from ..costs.peak_flops import peak_flops_of
from ..costs.step_flops import StepFlops
from ..data.batches.token_budget import Batch
from ..evaluation.evaluation_file import Evaluation
from ..recipe.recipe import Recipe
from ..reporting.energy import EnergyMeter
from ..reporting.progress_state import ProgressState
from ..reporting.recorder import Recorder
from ..run_folder import RunFolder
from ..tasks.protocols import Task
from .checkpoints.selection import choose_weights, count_validations_without_improvement, find_steps_to_keep
from .checkpoints.snapshot import find_damage, read_newest_sound_checkpoint, write_snapshot
from .devices.hardware import describe_hardware
from .gradients import GradientNorms, gradient_norms
from .guard import TrainingDivergedError, Verdict
from .memory.allocator import keep_large_buffers
from .memory.kernel_cache import bound_kernel_cache
from .memory.split_batch import split_batch
from .schedules import learning_rate
from .step import add_gradients, sum_totals, try_longest_batch, update_weights
from .stop_request import StopRequest, TrainingStopped
from .training_state import TrainingState


@dataclass(frozen=True)
class FittedModel:
    """What training results in."""

    model: PreTrainedModel
    """With the weights that score best on the validation split; in the first process only. Where its weights lie on
    several processes, a copy on the CPU."""

    weights: str
    """Which weights these are."""

    progress: ProgressState
    """Steps, time, operations and energy, over all resumptions."""

    state: TrainingState

    def evaluate(self, split: str) -> Evaluation | None:
        """All scores on a split, as training computes them: by the first process, or by all together.

        All processes have to call it; None in those that take no part.
        """
        if not self.state.takes_part:
            return None
        with self.state.scoring() as model:
            return self.state.task.scoring.evaluate(model, split)


def fit(task: Task, recipe: Recipe[Any], folder: RunFolder, accelerator: Accelerator) -> FittedModel:
    """Trains a model and chooses its final weights on the validation split.

    Raises:
        InputError: if there is not enough memory, if a checkpoint to resume from belongs to another model, if all are
            damaged, or if one cannot be written.
        TrainingDivergedError: if the loss or the gradient has exploded, and the recipe says to stop.
        TrainingStopped: if SIGINT or SIGTERM came; a checkpoint of that very step is saved before.
    """
    keep_large_buffers()
    bound_kernel_cache()
    trainer = Trainer(task, recipe, folder, accelerator)
    trainer.train()
    return trainer.finish()


class Trainer:
    """A run between its first step and its last.

    Args:
        task: what is trained.
        recipe: how.
        folder: where its state and its figures go.
        accelerator: on which processes and devices; its own mixed precision is not used.

    Raises:
        InputError: as `fit` does.
    """

    def __init__(self, task: Task, recipe: Recipe[Any], folder: RunFolder, accelerator: Accelerator):
        self.task, self.recipe, self.folder, self.accelerator = task, recipe, folder, accelerator
        self.options = recipe.optimization
        self.state = TrainingState(task, recipe, folder, accelerator)
        self.progress = self.state.progress
        self.flops_of = task.flops_of or StepFlops(self.state.config)  # type: ignore[arg-type]  # of one of the families
        self.parts = 1
        if recipe.run.resume:
            self.state.resume()
        if self.progress.step < self.options.max_steps:
            self.parts = try_longest_batch(self.state)

    def train(self) -> None:
        """Takes the steps that are left."""
        progress, accelerator, options = self.progress, self.accelerator, self.options
        if progress.step >= options.max_steps or self._is_exhausted():
            return
        peak = energy = None
        if accelerator.is_main_process:
            peak = peak_flops_of(accelerator.device, options.mixed_precision)
            local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # set by launchers
            watts = self.recipe.run.device_watts
            energy = EnergyMeter(accelerator.device, accelerator.num_processes, local, watts)
            self.folder.log(
                {
                    "step": progress.step,
                    "hardware": describe_hardware(),
                    "processes": accelerator.num_processes,
                    "peak_flops": peak,
                }
            )
        batches = iter(self.state.stream)
        if "roll_back" in (self.recipe.guard.spike, self.recipe.guard.non_finite) and progress.step == 0:
            self._save()
        save_every = self.recipe.checkpoints.every_steps or options.max_steps
        recorder = Recorder(accelerator, self.folder, progress, options.max_steps, peak, energy)
        with recorder as self.recorder, StopRequest() as self.stop_request:
            while progress.step < options.max_steps:
                steps_before = progress.step
                self._step(batches)
                is_last, is_set_back = progress.step == options.max_steps, progress.step <= steps_before
                if not is_set_back and (is_last or progress.step % self.recipe.evaluation.every_steps == 0):
                    with self.recorder.paused():
                        self._validate()
                        self._save()
                        if self.accelerator.is_main_process:
                            self.folder.settle()
                    if self._is_exhausted():
                        break
                elif self._shall_stop or is_set_back or progress.step % save_every == 0:
                    with self.recorder.paused():
                        self._save()
                if self._shall_stop:
                    raise TrainingStopped(f"stopped after step {progress.step:,}, and its state is saved")

    def finish(self) -> FittedModel:
        """Chooses the final weights."""
        state, options, weights = self.state, self.recipe.evaluation, ""
        if state.takes_part:

            def validate() -> Any:
                found = self.task.scoring.validate(state.plain)
                return state.first_says(next(s.value for s in found if s.metric.name == options.select_by))

            with state.scoring(), state.precision.autocast():  # as every other validation
                checkpoints = state.first_says(dict(self.folder.checkpoints()))
                choice = choose_weights(checkpoints, self.progress.scores, options, state.put_mean, validate)
            weights, score = choice.name, choice.scores[choice.name]
            if self.accelerator.is_main_process:
                record = {"chosen": weights, "select_by": options.select_by, "candidates": choice.scores}
                self.folder.log({"step": self.progress.step} | record)
            say(f"weights: {weights} (validation {options.select_by} {score:.3f})")
        model = state.whole_model()
        state.config.use_cache = model.config.use_cache = True
        self.accelerator.wait_for_everyone()
        return FittedModel(model, weights, self.progress, state)

    def _is_exhausted(self) -> bool:
        """Whether the validation score has stopped improving, by the recipe's patience."""
        options = self.recipe.evaluation
        since = count_validations_without_improvement(self.progress.scores, options)
        if options.patience == 0 or since < options.patience:
            return False
        say(f"stopped early at step {self.progress.step:,}: no better {options.select_by} in {since} validations")
        return True

    # --- one step ---

    @property
    def _shall_stop(self) -> bool:
        """Whether somebody has asked a process to stop; several agree once a step."""
        return self.stop_request.requested if self.accelerator.num_processes == 1 else self.stops > 0

    def _step(self, batches: Iterator[Batch]) -> None:
        """One update from `accumulation_steps` batches of each process.

        The guard may have the update left out, or the run set back to its last checkpoint.
        """
        state, progress, options = self.state, self.progress, self.options
        state.set_training()
        position = state.stream.state_dict()
        step_batches = [next(batches) for _ in range(options.accumulation_steps)]
        totals = sum_totals(state, step_batches, self.flops_of, stop=self.stop_request.requested)
        self.stops = totals.stops
        # Sharded weights are gathered by all processes at once, so that all need the same number of parts.
        cut = partial(split_batch, parts=self.parts, fill_up=state.layout.is_sharded)
        loss = add_gradients(state, [part for batch in step_batches for part in cut(batch)], totals.labels)
        state.precision.unscale(state.optimizers)
        norms = gradient_norms(state.parameters)
        progress.step += 1
        rate = learning_rate(options, progress.step, state.config.hidden_size)
        # A gradient that overflows is how the loss scale of float16 is found: the scaler leaves the update out.
        is_overflow = state.precision.may_overflow and math.isfinite(loss) and not norms.is_finite
        verdict = None if is_overflow else state.guard.judge(progress.step, loss, norms.total)
        if verdict is None or verdict.action == "warn":
            update_weights(state, norms, rate, clip=not is_overflow)
        else:
            state.precision.skip()
        state.forget_gradients()
        if verdict is not None:
            self._intervene(verdict, norms, position)
            if verdict.action == "roll_back":
                return
        if verdict is None or verdict.action != "skip":  # what is left out has trained nothing
            progress.count(loss, totals)
        self.recorder.step_done(rate, norms.total, norms.by_layer)

    def _intervene(self, verdict: Verdict, norms: GradientNorms, position: Mapping[str, int]) -> None:
        """Writes down what the guard found, and goes back or stops if it says so.

        Raises:
            TrainingDivergedError: if it says stop.
        """
        step, parameter = self.progress.step, norms.conspicuous_parameter()
        in_words = verdict.in_words(position, parameter)
        if verdict.action == "roll_back":
            # To the last checkpoint; but not in the data: the batches since then are left out.
            snapshot = read_newest_sound_checkpoint(self.folder, self.accelerator)
            assert snapshot is not None  # one is saved before the first step
            self.state.restore(snapshot)
        found = asdict(verdict) | {"batch": dict(position), "parameter": parameter}
        self.recorder.event(step, found, in_words)
        if verdict.action == "stop":
            raise TrainingDivergedError(
                f"step {step:,}: {in_words}; training stopped before the step, and the "
                "last checkpoint is sound. A lower optimization.learning_rate or a longer warm-up usually helps; "
                "guard.non_finite and guard.spike say what else to do"
            )

    # --- between steps ---

    def _validate(self) -> None:
        """Scores the current weights, or their average, on the validation split."""
        scores: dict[str, float] = {}
        average = self.state.average
        with average.in_place() if average is not None else nullcontext():
            if self.state.takes_part:
                with self.state.scoring() as model, self.state.precision.autocast():
                    found = self.task.scoring.validate(model)
                    samples = self.task.scoring.validation_samples(model)
                scores = {score.metric.name: score.value for score in found}
        if self.accelerator.is_main_process:
            self.recorder.validated(found)
            if samples:
                self.recorder.sampled(samples)
        if self.accelerator.num_processes > 1:
            (scores,) = broadcast_object_list([scores])
        self.progress.scores[self.progress.step] = scores

    def _save(self) -> None:
        """Saves everything needed to go on, and deletes checkpoints that are of no more use."""
        snapshot = self.state.take_snapshot()
        if self.accelerator.is_main_process:
            step, scores = self.progress.step, self.progress.scores
            path = self.folder.save_checkpoint(step, lambda path: write_snapshot(path, snapshot))
            if (fault := find_damage(path)) is not None:
                raise InputError(f"{path} was written, and reading it back finds it damaged ({fault}); check the disk")
            keep = find_steps_to_keep(
                [step for step, _ in self.folder.checkpoints()], scores, self.recipe.evaluation, self.recipe.checkpoints
            )
            self.folder.delete_checkpoints_except(keep)
        self.accelerator.wait_for_everyone()
