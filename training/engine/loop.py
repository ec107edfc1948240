"""The training loop, with Accelerate: the same for every family, on a processor, a GPU, or several.

What a task must bring is the protocol `Task`; everything else (accumulation, clipping, the learning rate, checkpoints,
resuming, choosing the final weights) is here.
"""

import math
import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel, get_scheduler

from ..allocator import keep_large_buffers
from ..card import SplitFacts
from ..cpu_attention import SDPA_FLOAT32
from ..data.batch_stream import BatchStream
from ..data.batching import Batch
from ..evaluation import count_labels
from ..hardware import describe_hardware
from ..input_error import InputError
from ..options.evaluation import EvaluationOptions
from ..options.optimization import Optimization
from ..progress import ProgressBar, is_first_process, say
from ..recipe import Recipe
from ..run_folder import RunFolder, partial_path

LOG_EVERY = 20  # steps between lines of metrics.jsonl


class Task(Protocol):
    """What a training run is about: its data, its model and its scores."""

    def build_model(self) -> PreTrainedModel:
        """The model with fresh weights."""

    def pools(self, epoch: int, first: int) -> Iterator[Sequence[Any]]:
        """The batches of an epoch, for all processes together, as `BatchStream` takes them."""

    def collate(self, batch: Any) -> Batch:
        """Tensors of one of those batches."""

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        """Scores on the validation split, among them `loss` in nats a token and the one to select by."""

    def evaluate(self, model: PreTrainedModel, split: str) -> tuple[dict[str, Any], list[str]]:
        """All scores on a whole split, as evaluation.json has them, and what the model put out for them."""

    def samples(self, outputs: list[str]) -> Sequence[Sequence[str]]:
        """A few of the outputs on the test split, each after what it answers, for the card."""

    def splits(self) -> list[SplitFacts]:
        """Sizes of the splits, for the card."""

    def describe_batches(self) -> str:
        """What an epoch of training is made of, in a line."""


class NonFiniteGradientError(RuntimeError):
    """The gradient has a NaN or an infinity; the weights were not touched."""


class TrainingStopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """Training was interrupted (Ctrl-C, SIGTERM) and its state saved."""


@dataclass(frozen=True)
class FittedModel:
    """What training results in."""

    model: PreTrainedModel
    """With the weights that score best on the validation split."""

    weights: str
    """Which weights these are."""

    seconds: float
    """Time spent on training steps, over all resumptions; validation is not counted."""


def fit(task: Task, recipe: Recipe[Any], folder: RunFolder, accelerator: Accelerator) -> FittedModel:
    """Trains a model and chooses its final weights on the validation split.

    Raises:
        InputError: if a checkpoint to resume from belongs to another model, or if one cannot be written.
        NonFiniteGradientError: if a gradient is not finite.
        TrainingStopped: if SIGINT or SIGTERM came; a checkpoint of that very step is saved before.
    """
    options = recipe.optimization
    keep_large_buffers()
    set_seed(recipe.run.seed)
    model = task.build_model()
    model.config.use_cache = False
    if accelerator.device.type == "cpu" and accelerator.mixed_precision == "bf16":
        model.set_attn_implementation(SDPA_FLOAT32)
    if options.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = _adamw(model, options, fused=accelerator.device.type in ("cpu", "cuda"))
    schedule = learning_rate_schedule(optimizer, options)
    model, optimizer = accelerator.prepare(model, optimizer)
    stream = BatchStream(
        task.pools, task.collate, accelerator.process_index, accelerator.num_processes, recipe.data.workers
    )
    progress = _Progress()
    accelerator.register_for_checkpointing(schedule, stream, progress)
    if recipe.run.resume:
        _resume(accelerator, folder)
        is_beyond = progress.step > options.max_steps
        if is_beyond or (progress.step == options.max_steps and progress.step not in progress.scores):
            raise InputError(
                f"optimization.max_steps is {options.max_steps}; it must be greater, as the run {folder.path} "
                f"is at step {progress.step} already"
            )

    if accelerator.is_main_process and progress.step < options.max_steps:
        folder.log({"step": progress.step, "hardware": describe_hardware()})

    batches, log = iter(stream), _StepLog(accelerator, folder, options.max_steps, progress)
    with log, _StopRequest() as stop:
        while progress.step < options.max_steps:
            _train_step(accelerator, model, optimizer, schedule, batches, options, log)
            progress.step += 1
            log.after_step(float(schedule.get_last_lr()[0]))
            if progress.step % recipe.evaluation.every_steps == 0 or progress.step == options.max_steps:
                with log.paused():
                    _validate(task, accelerator, model, folder, recipe.evaluation, progress)
                    _save_checkpoint(accelerator, folder, recipe.evaluation, progress)
            elif stop.requested:
                _save_checkpoint(accelerator, folder, recipe.evaluation, progress)
            if stop.requested:
                raise TrainingStopped(f"stopped after step {progress.step:,}; its state is saved, go on with --resume")
    model = accelerator.unwrap_model(model)
    model.config.use_cache = True
    weights = ""
    if accelerator.is_main_process:
        weights = _choose_weights(task, model, folder, recipe.evaluation, progress)
    accelerator.wait_for_everyone()
    return FittedModel(_without_autocast(model), weights, progress.seconds)


def _without_autocast(model: PreTrainedModel) -> PreTrainedModel:
    """Takes Accelerate's forward in mixed precision off the model: what is scored is what a user will load.

    `unwrap_model(keep_fp32_wrapper=False)` would take off the decorators of the class's own forward as well.
    """
    for name in ("forward", "_original_forward"):
        vars(model).pop(name, None)
    return model


def learning_rate_schedule(
    optimizer: torch.optim.Optimizer, options: Optimization
) -> torch.optim.lr_scheduler.LRScheduler:
    """Linear warm-up to the peak, then the shape named by `options.schedule`."""
    names = {"constant": "constant_with_warmup"}
    return get_scheduler(
        names.get(options.schedule, options.schedule),
        optimizer,
        num_warmup_steps=options.warmup_steps,
        num_training_steps=options.max_steps,
    )


def _adamw(model: PreTrainedModel, options: Optimization, *, fused: bool) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2017) that decays matrices and leaves biases and norms alone."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (options.adam_beta1, options.adam_beta2)
    return torch.optim.AdamW(groups, lr=options.learning_rate, betas=betas, eps=options.adam_epsilon, fused=fused)


def _train_step(
    accelerator: Accelerator,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    batches: Iterator[Batch],
    options: Optimization,
    log: "_StepLog",
) -> None:
    """One optimizer step over `accumulation_steps` batches on each process."""
    model.train()
    micro_batches = [next(batches) for _ in range(options.accumulation_steps)]
    unwrapped = accelerator.unwrap_model(model)
    is_shifted = unwrapped.config.is_encoder_decoder
    labels = sum(count_labels(batch, is_shifted=is_shifted) for batch in micro_batches)
    # The mean over all labels of the step, wherever they are: sums are divided once, by this count.
    all_labels = accelerator.reduce(torch.tensor(labels, device=accelerator.device), "sum")
    for index, batch in enumerate(micro_batches):
        batch = {name: tensor.to(accelerator.device, non_blocking=True) for name, tensor in batch.items()}
        last = index == len(micro_batches) - 1
        with (
            accelerator.autocast(),
            _no_gradient_exchange(accelerator, model, unless=last),
        ):
            loss = model(**batch, num_items_in_batch=all_labels).loss
            # Data parallelism averages gradients over processes; the sum is wanted.
            accelerator.backward(loss * accelerator.num_processes)
        log.add_loss(loss.detach())
    gradient_norms = _clip_gradient(unwrapped, options.max_grad_norm)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad(set_to_none=True)
    log.end_step(int(all_labels), gradient_norms)


@dataclass(frozen=True)
class GradientNorms:
    """Euclidean norms of one step's gradient, summed over all its batches and processes, before clipping."""

    total: float
    names: list[str]
    """The parameters, in the order of `parameters`."""

    parameters: torch.Tensor
    """The norm of each parameter's gradient, (N,), still on its device."""

    def by_layer(self) -> dict[str, float]:
        """The norm of each block's gradient, and of each module's outside the blocks: `encoder.layers.0`, `norm`."""
        squares: dict[str, float] = {}
        for name, norm in zip(self.names, self.parameters.tolist(), strict=True):
            block = re.match(r".*?\blayers\.\d+", name)
            layer = (block[0] if block else name.rpartition(".")[0]).removeprefix("model.")
            squares[layer] = squares.get(layer, 0.0) + norm**2
        return {layer: math.sqrt(square) for layer, square in squares.items()}


def _clip_gradient(model: torch.nn.Module, max_norm: float) -> GradientNorms:
    """Scales the gradient down to a norm, if it is longer, and returns the norms it had.

    Raises:
        NonFiniteGradientError: if it has a NaN or an infinity, before that spreads to all parameters by the scaling.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.grad is not None}
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    # One pass over the gradients gives the norms of the parameters, and they give the total.
    norms = torch.stack(torch._foreach_norm(gradients))  # (N,)
    if isinstance(norms, DTensor):  # of weights that are sharded over processes
        norms = norms.full_tensor()
    total = torch.linalg.vector_norm(norms)
    if not math.isfinite(total):
        raise NonFiniteGradientError(_describe_non_finite(model))
    torch.nn.utils.clip_grads_with_norm_(parameters.values(), max_norm, total)
    return GradientNorms(float(total), list(parameters), norms)


def _no_gradient_exchange(
    accelerator: Accelerator, model: torch.nn.Module, *, unless: bool
) -> AbstractContextManager[None]:
    return nullcontext() if unless else accelerator.no_sync(model)


def _describe_non_finite(model: torch.nn.Module) -> str:
    bad = [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    return (
        f"the gradient of {len(bad)} parameters is not finite, first {bad[0] if bad else 'unknown'}; training stopped "
        "before the step, and the last checkpoint is sound. A lower optimization.learning_rate or a longer warm-up "
        "usually helps."
    )


def _validate(
    task: Task,
    accelerator: Accelerator,
    model: torch.nn.Module,
    folder: RunFolder,
    options: EvaluationOptions,
    progress: "_Progress",
) -> None:
    """Scores the current weights on the validation split."""
    step = progress.step
    if accelerator.is_main_process:
        scores = task.validate(accelerator.unwrap_model(model))
        progress.scores[step] = scores[options.select_by]
        folder.log({"step": step, "validation": scores, "seconds": round(progress.seconds, 1)})
        shown = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
        say(f"step {step:,}: validation {shown} ({progress.seconds / 60:.1f} min)")
    accelerator.wait_for_everyone()


def _save_checkpoint(
    accelerator: Accelerator, folder: RunFolder, options: EvaluationOptions, progress: "_Progress"
) -> None:
    """Saves everything needed to go on, and keeps the best checkpoint and the last few validated ones beside it."""
    progress.gather_window(accelerator)

    def write(path: Path) -> None:
        accelerator.wait_for_everyone()  # the first process has made the folder
        accelerator.save_state(str(path))
        accelerator.wait_for_everyone()  # every process has written its random state

    if accelerator.is_main_process:
        validated = sorted(progress.scores)
        keep = set(validated[-max(1, options.average_checkpoints) :])
        if validated:
            keep.add(_best(progress.scores, options))
        folder.save_checkpoint(progress.step, write, keep)
    else:
        write(partial_path(folder.checkpoint_path(progress.step)))
    accelerator.wait_for_everyone()


Candidate = TypeVar("Candidate", int, str)


def _best(scores: dict[Candidate, float], options: EvaluationOptions) -> Candidate:
    """The candidate with the best score; of equal ones the first."""
    return (min if options.select_by == "loss" else max)(scores, key=lambda candidate: scores[candidate])


def _choose_weights(
    task: Task, model: PreTrainedModel, folder: RunFolder, options: EvaluationOptions, progress: "_Progress"
) -> str:
    """Leaves the better of two candidates in the model, the best checkpoint or the mean of the last, and names it."""
    checkpoints = dict(folder.checkpoints())
    best = _best({step: score for step, score in progress.scores.items() if step in checkpoints}, options)
    candidates = {f"step {best}": [checkpoints[best]]}
    if options.average_checkpoints > 1:
        last = sorted(checkpoints.keys() & progress.scores.keys())[-options.average_checkpoints :]
        candidates[f"mean of steps {', '.join(map(str, last))}"] = [checkpoints[step] for step in last]
    scores = {f"step {best}": progress.scores[best]}
    for name, folders in candidates.items():
        if name not in scores:
            _load_mean(model, folders)
            scores[name] = task.validate(model)[options.select_by]
    chosen = _best(scores, options)
    _load_mean(model, candidates[chosen])
    folder.log({"step": progress.step, "chosen": chosen, "select_by": options.select_by, "candidates": scores})
    say(f"weights: {chosen} (validation {options.select_by} {scores[chosen]:.3f})")
    return chosen


def _load_mean(model: PreTrainedModel, folders: list[Path]) -> None:
    """Loads the element-wise mean of the weights of checkpoints."""
    mean: dict[str, torch.Tensor] = {}
    for folder in folders:
        for name, tensor in load_file(folder / "model.safetensors").items():
            mean[name] = mean.get(name, 0) + tensor.double() / len(folders)
    own = model.state_dict()
    model.load_state_dict({name: tensor.to(own[name].dtype) for name, tensor in mean.items()}, strict=False)
    model.tie_weights()


def _resume(accelerator: Accelerator, folder: RunFolder) -> None:
    """Restores weights, optimizer, schedule, random states and data position of the newest checkpoint, if any."""
    checkpoints = folder.checkpoints()
    if not checkpoints:
        if accelerator.is_main_process:
            folder.forget_metrics_after(0)
        return
    step, path = checkpoints[-1]
    try:
        accelerator.load_state(str(path))
    except (RuntimeError, ValueError, KeyError, OSError, SafetensorError) as error:
        lines = [line.strip() for line in str(error).splitlines()] or [type(error).__name__]
        reason = next((line for line in lines if "size mismatch" in line), lines[0])
        raise InputError(f"{path} is a checkpoint of another model, or damaged: {reason}") from error
    if accelerator.is_main_process:
        folder.forget_metrics_after(step)
    say(f"resumed from {path}")


class _Progress:
    """What the loop itself has to remember: saved in every checkpoint."""

    def __init__(self) -> None:
        self.step = 0
        self.seconds = 0.0  # of training, without validation and interruptions
        self.scores: dict[int, float] = {}
        self.new_window()

    def new_window(self) -> None:
        """Begins anew the sums of which the next line of metrics.jsonl is made."""
        self.loss: torch.Tensor | float = 0.0
        self.labels, self.steps, self.window_seconds = 0, 0, 0.0

    def gather_window(self, accelerator: Accelerator) -> None:
        """Brings the sum of the losses together in the first process, whose state is the one that is saved."""
        loss = accelerator.reduce(torch.as_tensor(self.loss, device=accelerator.device), "sum").item()
        self.loss = loss if accelerator.is_main_process else 0.0

    def state_dict(self) -> dict[str, Any]:
        window = {name: getattr(self, name) for name in ("loss", "labels", "steps", "window_seconds")}
        return {"step": self.step, "seconds": self.seconds, "scores": dict(self.scores), "window": window}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step, self.seconds, self.scores = state["step"], state["seconds"], dict(state["scores"])
        for name, value in state.get("window", {}).items():
            setattr(self, name, value)
        if not is_first_process():
            self.loss = 0.0


class _StepLog:
    """Progress bar and metrics.jsonl: loss, learning rate, gradient norm, speed, time left."""

    def __init__(self, accelerator: Accelerator, folder: RunFolder, max_steps: int, progress: _Progress):
        self.accelerator, self.folder, self.progress = accelerator, folder, progress
        self.bar = ProgressBar(total=max_steps, initial=progress.step, desc="train", unit=" step", leave=True)

    def __enter__(self) -> "_StepLog":
        self.clock = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def add_loss(self, loss: torch.Tensor) -> None:
        """Adds a micro-batch's share of its step's mean loss, still on its device."""
        self.progress.loss = self.progress.loss + loss

    def end_step(self, labels: int, gradient_norms: GradientNorms) -> None:
        """Adds what else is known of a step."""
        self.progress.labels += labels
        self.progress.steps += 1
        self.gradient_norms = gradient_norms

    def after_step(self, learning_rate: float) -> None:
        """Counts the time of a step, and writes a line if it is time for one."""
        progress, now = self.progress, time.perf_counter()
        progress.seconds += now - self.clock
        progress.window_seconds += now - self.clock
        self.clock = now
        if progress.step % LOG_EVERY == 0:
            progress.gather_window(self.accelerator)
            loss, speed = progress.loss / progress.steps, progress.labels / progress.window_seconds
            self.bar.set_postfix_str(f"loss {loss:.3f}, {speed:,.0f} tok/s", refresh=False)
            if self.accelerator.is_main_process:
                self.folder.log(
                    {
                        "step": progress.step,
                        "loss": loss,
                        "learning_rate": learning_rate,
                        "gradient_norm": self.gradient_norms.total,
                        "gradient_norm_by_layer": self.gradient_norms.by_layer(),
                        "tokens_per_second": round(speed, 1),
                        "seconds": round(progress.seconds, 1),
                    }
                )
            progress.new_window()
        self.bar.update()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A context whose time does not count as training."""
        yield
        self.clock = time.perf_counter()


class _StopRequest:
    """Remembers SIGINT and SIGTERM instead of dying of them, until the step is done and its state can be saved.

    A second one ends the program at once.
    """

    def __enter__(self) -> "_StopRequest":
        self.requested = False
        self.previous = {number: signal.signal(number, self._remember) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
