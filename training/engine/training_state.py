"""All that training changes, from the weights to the position in the data: what a checkpoint holds."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed
from transformers import PreTrainedModel

from ..console.input_error import InputError
from ..console.progress import say
from ..data.batches.batch_stream import BatchStream
from ..exact_weights import put_weights
from ..recipe.changes import what_makes_batches
from ..recipe.recipe import Recipe
from ..reporting.progress_state import ProgressState
from ..run_folder import RunFolder
from ..tasks.protocols import Task
from .checkpoints.averaging import mean_weights
from .checkpoints.snapshot import (
    Snapshot,
    capture_random_states,
    gather_optimizers,
    gather_weights,
    read_newest_sound_checkpoint,
    restore_random_states,
    scatter_optimizers,
    scatter_weights,
)
from .devices.compiling import compile_blocks, recompute_activations
from .devices.cpu_attention import use_fast_attention
from .devices.precision import Precision
from .devices.sharding import Layout, distribute, forget_gathered
from .ema import make_average
from .guard import LossGuard
from .optimizers import build_optimizers


class TrainingState:
    """A model in training with its optimizers, its place in the data, and all else that differs from step to step.

    Args:
        task: makes the model and the batches.
        recipe: how it is trained.
        folder: the run's.
        accelerator: on which processes and devices.

    Raises:
        InputError: if the device cannot compute as the recipe says, or the model cannot be laid out on the processes.
    """

    def __init__(self, task: Task, recipe: Recipe[Any], folder: RunFolder, accelerator: Accelerator):
        self.task, self.recipe, self.folder, self.accelerator = task, recipe, folder, accelerator
        layout = self.layout = Layout.of(accelerator)
        options = recipe.optimization
        set_seed(recipe.run.seed)
        plain = _build(task)
        if accelerator.is_main_process:
            folder.save_config(plain)
        plain.config.use_cache = False
        self.config = plain.config
        self.precision = Precision(options.mixed_precision, accelerator.device)
        self.precision.prepare(plain)
        if options.fast_attention:
            use_fast_attention(plain, accelerator.device)
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
        self.average = make_average(self.plain, self.optimizers, options.ema_decay)
        self.stream = BatchStream(
            task.batches.pools, task.batches.collate, layout.data_rank, layout.data_size, recipe.data.workers
        )
        self.guard = LossGuard(recipe.guard)
        self.progress = ProgressState()

    def set_training(self) -> None:
        """Puts the model into training mode."""
        if not self.plain.training:  # since it walks through all modules
            self.model.train()

    def forget_gradients(self) -> None:
        """Leaves no gradient to add to."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @property
    def takes_part(self) -> bool:
        """Whether this process computes scores: the first does, and where none has all weights, every process."""
        return self.accelerator.is_main_process or not self.layout.is_whole

    @contextmanager
    def scoring(self) -> Iterator[PreTrainedModel]:
        """A context with the model for scores and outputs, for processes that take part: all do the same in it.

        What training draws next is what it would have drawn.
        """
        with self.own_randomness():
            yield self.plain
        forget_gathered(self.plain)

    def first_says(self, value: Any) -> Any:
        """A value of the first process, on all that take part."""
        return value if self.layout.is_whole else broadcast_object_list([value])[0]

    def put_mean(self, files: Sequence[Path]) -> None:
        """Sets the weights to the mean of those in some files, for all that take part; the first process reads.

        Raises:
            InputError: if a file cannot be read, or holds the weights of another model.
        """
        if self.layout.is_whole:
            put_weights(self.plain, mean_weights(files), str(files[0]))
            return
        forget_gathered(self.plain)
        scatter_weights(self.plain, mean_weights(files) if self.accelerator.is_main_process else {}, self.accelerator)

    def whole_model(self) -> PreTrainedModel:
        """The model with all its weights, in the first process; of weights that lie on several, a copy on the CPU.

        All processes have to call it. Others get their part.
        """
        if self.layout.is_whole:
            return self.plain
        weights = gather_weights(self.plain)
        if not self.accelerator.is_main_process:
            return self.plain
        with self.own_randomness():
            model = self.task.build_model()
        put_weights(model, weights, "the processes' weights")
        return model

    def own_randomness(self) -> AbstractContextManager[None]:
        """A context that may draw random numbers without changing what training draws next."""
        device = self.accelerator.device
        return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])

    def take_snapshot(self) -> Snapshot:
        """Everything needed to go on; whole in the first process. All processes have to call it."""
        average = None
        if self.average is not None:
            with self.average.in_place():
                average = {name: tensor.clone() for name, tensor in gather_weights(self.plain).items()}
        return Snapshot(
            weights=gather_weights(self.plain),
            average=average,
            optimizer=gather_optimizers(self.plain, self.optimizers),
            random=capture_random_states(self.accelerator, self.layout),
            state={
                "progress": self.progress.state_dict(),
                "stream": self.stream.state_dict(),
                "batches": what_makes_batches(self.recipe.yaml),
                "guard": self.guard.state_dict(),
                "precision": self.precision.state_dict(),
            },
        )

    def resume(self) -> None:
        """Goes on from the newest checkpoint that is sound, if there is any.

        Raises:
            InputError: if it belongs to another model, or the run is beyond its last step.
        """
        snapshot = read_newest_sound_checkpoint(self.folder, self.accelerator)
        if snapshot is None:
            if self.accelerator.is_main_process:
                self.folder.forget_after(0)
            return
        saved = ProgressState()
        saved.load_state_dict(snapshot.state["progress"])
        step, last = saved.step, self.recipe.optimization.max_steps
        if step > last or (step == last and step not in saved.scores):
            raise InputError(
                f"optimization.max_steps is {last}; it must be greater, as the run {self.folder.path} is at step "
                f"{step} already"
            )
        self.restore(snapshot)
        self.guard.load_state_dict(snapshot.state["guard"])
        self._find_place(snapshot.state)

    def restore(self, snapshot: Snapshot) -> None:
        """Takes over a saved state, all but the guard's and the position in the data.

        Raises:
            InputError: if it is of another model.
        """
        accelerator, state = self.accelerator, snapshot.state
        try:
            if self.average is not None:
                scatter_weights(self.plain, snapshot.average or snapshot.weights, accelerator)
                self.average.restart()
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

    def _find_place(self, state: Mapping[str, Any]) -> None:
        """Goes on with the batch that is next; with the next epoch if batches are not what they were."""
        place = state["stream"]
        before, now = state["batches"], what_makes_batches(self.recipe.yaml)
        if changed := [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]:
            place = {"epoch": place["epoch"] + 1, "pool": 0, "index": 0}
            say(f"{', '.join(sorted(changed))} changed, and so have the batches: epoch {place['epoch']} begins")
        self.stream.load_state_dict(place)


def _build(task: Task) -> PreTrainedModel:
    """The model.

    Raises:
        InputError: if it does not fit into memory.
    """
    try:
        return task.build_model()
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        reason = str(error).strip().splitlines()[0] if str(error) else "out of memory"
        raise InputError(
            f"model: it does not fit into memory ({reason}); make it smaller (model.hidden_size, the number of layers, "
            "tokenizer.vocab_size); paperformer plan says beforehand what a model takes"
        ) from error
