"""One step: the gradients of its batches, added up over pieces and processes, and what they do to the weights."""

from collections.abc import Callable
from functools import partial

import torch

from ..data.batches.token_budget import Batch
from ..evaluation.perplexity import count_labels
from ..reporting.progress_state import StepTotals
from .checkpoints.snapshot import capture_random_states, restore_random_states
from .devices.sharding import gradient_exchange
from .gradients import GradientNorms, clip_gradients
from .memory.dry_run import dry_run
from .optimizers import optimizer_state_bytes, set_learning_rate
from .r_drop import r_drop_loss
from .training_state import TrainingState


def sum_totals(
    state: TrainingState, batches: list[Batch], flops_of: Callable[[Batch], float], *, stop: bool
) -> StepTotals:
    """Counts of a step, over all processes; the only numbers they tell each other before the gradient.

    Args:
        batches: those of this process.
        flops_of: counts the floating-point operations of a batch.
        stop: whether this process has been asked to stop.
    """
    labels = sum(count_labels(state.plain, batch) for batch in batches)
    padding = -1 if state.config.pad_token_id is None else state.config.pad_token_id
    masks = [batch["input_ids"] != padding for batch in batches]
    if state.config.is_encoder_decoder:  # the target is a sequence of its own
        masks += [batch["labels"] != -100 for batch in batches]
    positions, real = sum(mask.numel() for mask in masks), sum(int(mask.sum()) for mask in masks)
    flops = sum(map(flops_of, batches)) * (2 if state.recipe.optimization.r_drop > 0 else 1)  # two passes
    own = [labels, positions, positions - real, flops, stop]
    if state.accelerator.num_processes == 1:
        return StepTotals(*map(float, own))
    shared = torch.tensor(own, dtype=torch.float64, device=state.accelerator.device)
    return StepTotals(*state.layout.sum(shared).tolist())


def add_gradients(state: TrainingState, batches: list[Batch], labels: float) -> float:
    """Adds up the gradients of a step; returns its mean loss over the labels of all batches and processes.

    Args:
        batches: what is computed one after the other.
        labels: of the whole step: sums are divided once.
    """
    device, alpha = state.accelerator.device, state.recipe.optimization.r_drop
    count = torch.tensor(max(1.0, labels), dtype=torch.float32, device=device)
    total = torch.zeros((), device=device)
    for index, batch in enumerate(batches):
        batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        with gradient_exchange(state.model, enabled=index == len(batches) - 1):
            with state.precision.autocast():
                if alpha > 0:
                    loss = r_drop_loss(state.model, batch, alpha, count)
                else:
                    loss = state.model(**batch, num_items_in_batch=count, return_logits=False).loss
            # Processes average their gradients; the sum is wanted.
            state.precision.backward(loss * state.layout.data_size)
        total += loss.detach()
    return float(state.layout.sum(total))


def update_weights(state: TrainingState, norms: GradientNorms, learning_rate: float, *, clip: bool) -> None:
    """Lets the optimizers take their step, and the moving average follow it."""
    if clip:
        clip_gradients(state.parameters.values(), norms, state.recipe.optimization.max_grad_norm)
    set_learning_rate(state.optimizers, learning_rate)
    if state.precision.step(state.optimizers) and state.average is not None:
        state.average.update(state.progress.step)


def try_longest_batch(state: TrainingState) -> int:
    """Runs the longest batch forward and backward, and returns how many parts batches are cut into.

    Raises:
        InputError: if there is not enough memory.
    """
    generators = capture_random_states(state.accelerator, state.layout)
    count = partial(count_labels, state.plain)

    def compute(parts: list[Batch]) -> None:
        state.set_training()
        try:
            add_gradients(state, parts, max(1, sum(map(count, parts))))
        finally:
            state.forget_gradients()

    later = optimizer_state_bytes(state.optimizers)
    options, device = state.recipe.optimization, state.accelerator.device
    parts = dry_run(compute, state.task.batches.longest_batch(), options, device, later)
    restore_random_states(generators, state.accelerator, state.layout, 0)
    return parts
