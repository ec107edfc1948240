"""Checkpoints: everything needed to go on from a step, independent of how many processes hold it, and verified.

    step-N/model.safetensors    weights, whole, by the names of the model
           ema.safetensors      their average, where one is validated instead (see `ema`)
           optimizer.pt         states of the optimizers by the names of the parameters
           random.pt            states of the random number generators of each data rank
           state.json           step, scores, position in the data, loss guard, loss scale
           manifest.json        size and XXH3 hash of each file, written last

Weights and optimizer states are gathered (torch.distributed.checkpoint), so that a run on one process goes on with
several, sharded or not, and the other way round. Only the first process writes and reads.
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
import xxhash
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from transformers import PreTrainedModel

from ...console.input_error import InputError
from ...console.progress import say
from ...run_folder import RunFolder
from ..devices.sharding import Layout

WEIGHTS, AVERAGE, OPTIMIZER, RANDOM, STATE, MANIFEST = (
    "model.safetensors",
    "ema.safetensors",
    "optimizer.pt",
    "random.pt",
    "state.json",
    "manifest.json",
)


@dataclass
class Snapshot:
    """The state of a run at a step, whole; on other processes than the first, parts of it are empty."""

    weights: dict[str, torch.Tensor]
    average: dict[str, torch.Tensor] | None
    optimizer: dict[str, Any]
    random: list[dict[str, Any]]
    """Of each process, or group of processes, that takes batches of its own."""

    state: dict[str, Any]
    """What fits into JSON."""


def gather_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights, whole, in CPU memory of the first process; tied ones once. All processes have to call it."""
    whole: dict[str, Any] = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    tied = set(model.all_tied_weights_keys)
    return {name: tensor.contiguous() for name, tensor in whole.items() if name not in tied}


def gather_optimizers(model: PreTrainedModel, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Any]:
    """The optimizers' states, whole, in CPU memory of the first process. All processes have to call it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return dict(get_optimizer_state_dict(model, tuple(optimizers), options=options))


def scatter_weights(model: PreTrainedModel, weights: dict[str, torch.Tensor], accelerator: Accelerator) -> None:
    """Sets the weights on all processes to those of the first.

    Raises:
        RuntimeError: if names or shapes are not the model's.
    """
    if accelerator.is_main_process:
        own: dict[str, Any] = get_model_state_dict(model)
        weights = weights | {target: weights[source] for target, source in model.all_tied_weights_keys.items()}
        for name in own.keys() | weights.keys():
            mine, given = own.get(name), weights.get(name)
            if mine is None or given is None or mine.shape != given.shape:
                shapes = [None if tensor is None else tuple(tensor.shape) for tensor in (given, mine)]
                raise RuntimeError(f"size mismatch for {name}: {shapes[0]} in the checkpoint, {shapes[1]} in the model")
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=accelerator.num_processes > 1)
    set_model_state_dict(model, dict(weights), options=options)
    model.tie_weights()


def scatter_optimizers(
    model: PreTrainedModel,
    optimizers: Sequence[torch.optim.Optimizer],
    states: dict[str, Any],
    accelerator: Accelerator,
) -> None:
    """Sets the optimizers' states on all processes to those of the first; their options stay those of the recipe."""
    chosen = [
        [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
        for optimizer in optimizers
    ]
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=accelerator.num_processes > 1)
    set_optimizer_state_dict(model, tuple(optimizers), dict(states), options=options)
    for optimizer, groups in zip(optimizers, chosen, strict=True):
        for group, values in zip(optimizer.param_groups, groups, strict=True):
            group.update(values)


def capture_random_states(accelerator: Accelerator, layout: Layout) -> list[dict[str, Any]]:
    """States of the random number generators by `data_rank`. All processes have to call it."""
    numpy_state: Any = np.random.get_state(legacy=True)  # noqa: NPY002 - whatever draws from it, a task of the user's too
    own: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (numpy_state[0], torch.from_numpy(numpy_state[1].astype(np.int64)), *numpy_state[2:]),
        "torch": torch.get_rng_state(),
    }
    if accelerator.device.type == "cuda":
        own["cuda"] = torch.cuda.get_rng_state(accelerator.device)
    gathered: list[dict[str, Any]] = gather_object([own]) if accelerator.num_processes > 1 else [own]
    return gathered[:: layout.tensor_parallel]


def restore_random_states(
    states: Sequence[dict[str, Any]], accelerator: Accelerator, layout: Layout, seed: int
) -> None:
    """Restores this process's generators; those of a data rank that was not there before are seeded anew.

    Args:
        states: as `capture_random_states` gave them, on every process.
        seed: different for each step, so that a new process does not repeat itself.
    """
    if layout.data_rank >= len(states):
        torch.manual_seed(seed + layout.data_rank)
        return
    own = states[layout.data_rank]
    version, internal, gauss = own["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = own["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(own["torch"])
    if "cuda" in own and accelerator.device.type == "cuda":
        torch.cuda.set_rng_state(own["cuda"], accelerator.device)


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Writes the files of a checkpoint into an empty folder, and last the manifest by which they are verified."""
    save_file(snapshot.weights, path / WEIGHTS, metadata={"format": "pt"})
    if snapshot.average is not None:
        save_file(snapshot.average, path / AVERAGE, metadata={"format": "pt"})
    torch.save(snapshot.optimizer, path / OPTIMIZER)
    torch.save(snapshot.random, path / RANDOM)
    (path / STATE).write_text(json.dumps(snapshot.state), encoding="utf-8")
    manifest = {file.name: _fingerprint(file) for file in sorted(path.iterdir())}
    (path / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read_snapshot(path: Path) -> Snapshot:
    """Reads a checkpoint that `find_damage` finds nothing wrong with."""
    average = path / AVERAGE
    return Snapshot(
        weights=load_file(path / WEIGHTS),
        average=load_file(average) if average.exists() else None,
        optimizer=torch.load(path / OPTIMIZER, weights_only=True, map_location="cpu"),
        random=torch.load(path / RANDOM, weights_only=True, map_location="cpu"),
        state=json.loads((path / STATE).read_text(encoding="utf-8")),
    )


def find_damage(path: Path) -> str | None:
    """What is wrong with a checkpoint on the disk, in words; None if every file is as it was written."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        files: Mapping[str, dict[str, Any]] = dict(manifest)
        for name, written in files.items():
            if not (path / name).is_file():
                return f"{name} is missing"
            if _fingerprint(path / name) != written:
                return f"{name} is not as it was written"
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return f"{MANIFEST} cannot be read: {error}"
    return None


def read_newest_sound_checkpoint(folder: RunFolder, accelerator: Accelerator) -> Snapshot | None:
    """The newest checkpoint of a run that is not damaged, on the first process; others get its state and generators.

    Returns None if the run has no checkpoint. Of each damaged one it is said what is wrong.

    Raises:
        InputError: if there are checkpoints and all are damaged.
    """
    snapshot, failure = None, None
    if accelerator.is_main_process:
        checkpoints = folder.checkpoints()
        for _, path in reversed(checkpoints):
            if (fault := find_damage(path)) is None:
                try:
                    snapshot = read_snapshot(path)
                except UnpicklingError:  # which `weights_only` raises of all but tensors and plain values
                    fault = f"{OPTIMIZER} or {RANDOM} holds other things than a checkpoint has"
                else:
                    say(f"going on from {path}")
                    break
            say(f"{path} is damaged ({fault}); the checkpoint before it is used")
        else:
            if checkpoints:
                failure = f"every checkpoint of {folder.path} is damaged; give --overwrite to begin anew"
    if accelerator.num_processes > 1:
        light = snapshot and Snapshot({}, snapshot.average and {}, {}, snapshot.random, snapshot.state)
        failure, light = broadcast_object_list([failure, light])
        snapshot = snapshot or light
    if failure:
        raise InputError(failure)
    return snapshot


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "xxh3_128": hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()}
