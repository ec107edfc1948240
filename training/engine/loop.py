"""The training loop: the same for every family, on a processor, a GPU, or several.

What a task must bring is the protocol `Task`; everything else (accumulation, clipping, the learning rate, checkpoints,
resuming, choosing the final weights) is here or beside here. Steps are counted from 1, and all that differs from step
to step follows from the step's number, the position in the data and the states of the random number generators: that is
what makes resuming exact.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed
from transformers import PreTrainedModel

from ..allocator import keep_large_buffers
from ..data.batch_stream import BatchStream
from ..data.batching import Batch
from ..evaluation import count_labels
from ..hardware import describe_hardware
from ..input_error import InputError
from ..progress import say
from ..recipe import Recipe
from ..recipe_changes import what_makes_batches
from ..run_folder import RunFolder
from .checkpoints import (
    Snapshot,
    damage,
    gather_optimizers,
    gather_weights,
    newest_sound_checkpoint,
    random_states,
    restore_random_states,
    scatter_optimizers,
    scatter_weights,
    write_snapshot,
)
from .compiling import compile_blocks, recompute_activations
from .ema import ExponentialMovingAverage
from .gradients import GradientNorms, clip_gradients, gradient_norms
from .guard import LossGuard, TrainingDivergedError, Verdict
from .memory import dry_run, optimizer_state_bytes, split_batch
from .optimizers import build_optimizers, set_learning_rate
from .precision import Precision
from .progress_state import ProgressState
from .r_drop import r_drop_loss
from .recorder import Recorder, describe
from .schedules import learning_rate
from .selection import choose_weights, validations_without_improvement, wanted
from .sharding import Layout, distribute, gradient_exchange
from .stop_request import StopRequest, TrainingStopped
from .task import Task
from .utilisation import EnergyMeter, StepFlops, peak_flops_of


@dataclass(frozen=True)
class FittedModel:
    """What training results in."""

    model: PreTrainedModel
    """With the weights that score best on the validation split; in the first process only."""

    weights: str
    """Which weights these are."""

    progress: ProgressState
    """Steps, time, operations and energy, over all resumptions."""


@dataclass(frozen=True)
class StepTotals:
    """Counts of one step's batches over all processes."""

    labels: float
    positions: float
    padding: float
    flops: float
    stops: float
    """More than 0 if a process has been asked to stop."""


def fit(task: Task, recipe: Recipe[Any], folder: RunFolder, accelerator: Accelerator) -> FittedModel:
    """Trains a model and chooses its final weights on the validation split.

    Raises:
        InputError: if there is not enough memory, if a checkpoint to resume from belongs to another model, if all are
            damaged, or if one cannot be written.
        TrainingDivergedError: if the loss or the gradient has exploded, and the recipe says to stop.
        TrainingStopped: if SIGINT or SIGTERM came; a checkpoint of that very step is saved before.
    """
    keep_large_buffers()
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
        layout = self.layout = Layout.of(accelerator)
        options = self.options = recipe.optimization
        set_seed(recipe.run.seed)
        plain = task.build_model()
        if accelerator.is_main_process:
            folder.save_config(plain)
        plain.config.use_cache = False
        self.config = plain.config
        self.precision = Precision(options.mixed_precision, accelerator.device)
        self.precision.prepare(plain)
        if options.gradient_checkpointing:
            recompute_activations(plain)
        if options.compile:
            compile_blocks(plain)
        self.model = distribute(plain, layout, accelerator)
        self.plain: PreTrainedModel = accelerator.unwrap_model(self.model)
        if layout.data_rank > 0:  # other batches, other units dropped
            torch.manual_seed(recipe.run.seed + layout.data_rank)
        # Kept, because finding them takes as long as a small layer; they stay the same.
        self.parameters = {name: p for name, p in self.plain.named_parameters() if p.requires_grad}
        self.optimizers = build_optimizers(self.plain, options)
        self.average = ExponentialMovingAverage(self.plain, options.ema_decay) if options.ema_decay > 0 else None
        self.stream = BatchStream(task.pools, task.collate, layout.data_rank, layout.data_size, recipe.data.workers)
        self.guard = LossGuard(recipe.guard)
        self.progress = ProgressState()
        self.flops_of = StepFlops(self.config)  # type: ignore[arg-type]  # it is of one of the families
        self.parts = 1
        if recipe.run.resume:
            self._resume()
        if self.progress.step < options.max_steps:
            self.parts = self._try_longest_batch()

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
        batches = iter(self.stream)
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
                    if self._is_exhausted():
                        break
                elif self._shall_stop or is_set_back or progress.step % save_every == 0:
                    with self.recorder.paused():
                        self._save()
                if self._shall_stop:
                    raise TrainingStopped(f"stopped after step {progress.step:,}, and its state is saved")

    def finish(self) -> FittedModel:
        """Chooses the final weights."""
        model, weights = self._whole_model(), ""
        if self.accelerator.is_main_process:
            with self.precision.autocast():  # as every other validation
                weights = choose_weights(
                    self.task, model, self.folder, self.recipe.evaluation, self.progress.scores, self.progress.step
                )
            model.config.use_cache = True
        self.accelerator.wait_for_everyone()
        return FittedModel(model, weights, self.progress)

    def _is_exhausted(self) -> bool:
        """Whether the validation score has stopped improving, by the recipe's patience."""
        options = self.recipe.evaluation
        since = validations_without_improvement(self.progress.scores, options)
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
        progress, options = self.progress, self.options
        self._set_training()
        position = self.stream.state_dict()
        step_batches = [next(batches) for _ in range(options.accumulation_steps)]
        totals = self._totals(step_batches)
        self.stops = totals.stops
        # Sharded weights are gathered by all processes at once, so that all need the same number of parts.
        parts = partial(split_batch, parts=self.parts, fill_up=self.layout.is_sharded)
        micro_batches = [part for batch in step_batches for part in parts(batch)]
        loss = self._backward(micro_batches, totals.labels)
        self.precision.unscale(self.optimizers)
        norms = gradient_norms(self.parameters)
        progress.step += 1
        rate = learning_rate(options, progress.step, self.config.hidden_size)
        # A gradient that overflows is how the loss scale of float16 is found: the scaler leaves the update out.
        is_overflow = self.precision.may_overflow and math.isfinite(loss) and not norms.is_finite
        verdict = None if is_overflow else self.guard.judge(progress.step, loss, norms.total)
        if verdict is None or verdict.action == "warn":
            if not is_overflow:
                clip_gradients(self.parameters.values(), norms, options.max_grad_norm)
            set_learning_rate(self.optimizers, rate)
            if self.precision.step(self.optimizers) and self.average is not None:
                self.average.update(progress.step)
        else:
            self.precision.skip()
        self._forget_gradients()
        if verdict is not None:
            self._intervene(verdict, norms, position)
            if verdict.action == "roll_back":
                return
        window = progress.window
        window.loss += loss
        window.labels += int(totals.labels)
        window.positions += int(totals.positions)
        window.padding += int(totals.padding)
        window.flops += totals.flops
        progress.flops += totals.flops
        self.recorder.step_done(norms, rate)

    def _set_training(self) -> None:
        if not self.plain.training:  # since it walks through all modules
            self.model.train()

    def _forget_gradients(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def _totals(self, batches: list[Batch]) -> StepTotals:
        """Counts of a step, over all processes; the only numbers they tell each other before the gradient."""
        is_shifted = self.config.is_encoder_decoder
        labels = sum(count_labels(batch, is_shifted=is_shifted) for batch in batches)
        masks = [batch["input_ids"] != self.config.pad_token_id for batch in batches]
        if is_shifted:
            masks += [batch["labels"] != -100 for batch in batches]
        positions, real = sum(mask.numel() for mask in masks), sum(int(mask.sum()) for mask in masks)
        flops = sum(map(self.flops_of, batches)) * (2 if self.options.r_drop > 0 else 1)  # two passes
        own = [labels, positions, positions - real, flops, self.stop_request.requested]
        if self.accelerator.num_processes == 1:
            return StepTotals(*map(float, own))
        shared = torch.tensor(own, dtype=torch.float64, device=self.accelerator.device)
        return StepTotals(*self.layout.sum(shared).tolist())

    def _backward(self, batches: list[Batch], labels: float) -> float:
        """Adds up the gradients of a step; returns its mean loss over the labels of all batches and processes."""
        device = self.accelerator.device
        count = torch.tensor(labels, dtype=torch.float32, device=device)
        total = torch.zeros((), device=device)
        for index, batch in enumerate(batches):
            batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
            with gradient_exchange(self.model, enabled=index == len(batches) - 1):
                with self.precision.autocast():
                    loss = self._loss(batch, count)
                # Processes average their gradients; the sum is wanted.
                self.precision.backward(loss * self.layout.data_size)
            total += loss.detach()
        return float(self.layout.sum(total))

    def _loss(self, batch: Batch, labels: torch.Tensor) -> torch.Tensor:
        """The sum of the losses of a batch, divided by the labels of the whole step: sums are divided once."""
        if self.options.r_drop > 0:
            return r_drop_loss(self.model, batch, self.options.r_drop, labels)
        loss: torch.Tensor = self.model(**batch, num_items_in_batch=labels, return_logits=False).loss
        return loss

    def _intervene(self, verdict: Verdict, norms: GradientNorms, position: Mapping[str, int]) -> None:
        """Writes down what the guard found, and goes back or stops if it says so.

        Raises:
            TrainingDivergedError: if it says stop.
        """
        step, parameter = self.progress.step, norms.conspicuous_parameter()
        if verdict.action == "roll_back":
            # To the last checkpoint; but not in the data: the batches since then are left out.
            snapshot = newest_sound_checkpoint(self.folder, self.accelerator)
            assert snapshot is not None  # one is saved before the first step
            self._restore(snapshot)
        self.recorder.event(step, verdict, position, parameter)
        if verdict.action == "stop":
            raise TrainingDivergedError(
                f"step {step:,}: {describe(verdict, position, parameter)}; training stopped before the step, and the "
                "last checkpoint is sound. A lower optimization.learning_rate or a longer warm-up usually helps; "
                "guard.non_finite and guard.spike say what else to do"
            )

    def _try_longest_batch(self) -> int:
        """Runs the longest batch forward and backward, and returns how many parts batches are cut into."""
        generators = random_states(self.accelerator, self.layout)
        batch = self.task.longest_batch()
        is_shifted = self.config.is_encoder_decoder

        def step(parts: list[Batch]) -> None:
            self._set_training()
            try:
                self._backward(parts, max(1, sum(count_labels(part, is_shifted=is_shifted) for part in parts)))
            finally:
                self._forget_gradients()

        later = optimizer_state_bytes(self.optimizers)
        parts = dry_run(step, batch, self.options, self.accelerator.device, later)
        restore_random_states(generators, self.accelerator, self.layout, 0)
        return parts

    # --- between steps ---

    def _validate(self) -> None:
        """Scores the current weights, or their average, on the validation split."""
        scores: dict[str, float] = {}
        with self.average.in_place() if self.average is not None else nullcontext():
            model = self._whole_model()
            if self.accelerator.is_main_process:
                with self._own_randomness(), self.precision.autocast():
                    scores = self.task.validate(model)
                    samples = self.task.validation_samples(model)
                self.recorder.validated(scores)
                if samples:
                    self.recorder.sampled(samples)
        if self.accelerator.num_processes > 1:
            (scores,) = broadcast_object_list([scores])
        self.progress.scores[self.progress.step] = scores

    def _whole_model(self) -> PreTrainedModel:
        """The model with all its weights on this process; where they are sharded, a copy in the first process."""
        if self.layout.is_whole:
            return self.plain
        weights = gather_weights(self.plain)
        if not self.accelerator.is_main_process:
            return self.plain
        with self._own_randomness():
            model = self.task.build_model()
        model.load_state_dict(weights, strict=False)
        model.tie_weights()
        return model.to(self.accelerator.device)

    def _own_randomness(self) -> AbstractContextManager[None]:
        """A context that may draw random numbers without changing what training draws next."""
        device = self.accelerator.device
        return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])

    def _save(self) -> None:
        """Saves everything needed to go on, and deletes checkpoints that are of no more use."""
        average = None
        if self.average is not None:
            with self.average.in_place():
                average = {name: tensor.clone() for name, tensor in gather_weights(self.plain).items()}
        snapshot = Snapshot(
            weights=gather_weights(self.plain),
            average=average,
            optimizer=gather_optimizers(self.plain, self.optimizers),
            random=random_states(self.accelerator, self.layout),
            state={
                "progress": self.progress.state_dict(),
                "stream": self.stream.state_dict(),
                "batches": what_makes_batches(self.recipe.yaml),
                "guard": self.guard.state_dict(),
                "precision": self.precision.state_dict(),
            },
        )
        if self.accelerator.is_main_process:
            step, scores = self.progress.step, self.progress.scores
            path = self.folder.save_checkpoint(step, lambda path: write_snapshot(path, snapshot))
            if (fault := damage(path)) is not None:
                raise InputError(f"{path} was written, and reading it back finds it damaged ({fault}); check the disk")
            keep = wanted(
                [step for step, _ in self.folder.checkpoints()], scores, self.recipe.evaluation, self.recipe.checkpoints
            )
            self.folder.delete_checkpoints_except(keep)
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        """Goes on from the newest checkpoint that is sound, if there is any.

        Raises:
            InputError: if it belongs to another model, or the run is beyond its last step.
        """
        snapshot = newest_sound_checkpoint(self.folder, self.accelerator)
        if snapshot is None:
            if self.accelerator.is_main_process:
                self.folder.forget_after(0)
            return
        saved = ProgressState()
        saved.load_state_dict(snapshot.state["progress"])
        step, last = saved.step, self.options.max_steps
        if step > last or (step == last and step not in saved.scores):
            raise InputError(
                f"optimization.max_steps is {last}; it must be greater, as the run {self.folder.path} is at step "
                f"{step} already"
            )
        self._restore(snapshot)
        self.guard.load_state_dict(snapshot.state["guard"])
        self._find_place(snapshot.state)

    def _find_place(self, state: Mapping[str, Any]) -> None:
        """Goes on with the batch that is next; with the next epoch if batches are not what they were."""
        place = state["stream"]
        before, now = state["batches"], what_makes_batches(self.recipe.yaml)
        if changed := [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]:
            place = {"epoch": place["epoch"] + 1, "pool": 0, "index": 0}
            say(f"{', '.join(sorted(changed))} changed, and so have the batches: epoch {place['epoch']} begins")
        self.stream.load_state_dict(place)

    def _restore(self, snapshot: Snapshot) -> None:
        """Takes over a saved state, all but the guard's and the position in the data."""
        accelerator, state = self.accelerator, snapshot.state
        try:
            if self.average is not None:
                scatter_weights(self.plain, snapshot.average or snapshot.weights, accelerator)
                self.average.load_state_dict({name: p.detach() for name, p in self.average.parameters.items()})
            scatter_optimizers(self.plain, self.optimizers, snapshot.optimizer, accelerator)
            scatter_weights(self.plain, snapshot.weights, accelerator)
        except (RuntimeError, ValueError, KeyError) as error:
            lines = [line.strip() for line in str(error).splitlines()] or [type(error).__name__]
            reason = next((line for line in lines if "size mismatch" in line), lines[0])
            raise InputError(f"the checkpoint in {self.folder.path} is of another model: {reason}") from error
        self.progress.load_state_dict(state["progress"])
        self.precision.load_state_dict(state["precision"])
        seed = self.recipe.run.seed + 1000 * self.progress.step
        restore_random_states(snapshot.random, accelerator, self.layout, seed)
        if accelerator.is_main_process:
            self.folder.forget_after(self.progress.step)
