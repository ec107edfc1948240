"""How the model and the data lie on the processes of a run.

    whole            all weights on each process, which takes batches of its own (DDP)
    sharded          weights, gradients and optimizer states in parts, gathered when a block computes (FSDP2)
    tensor parallel  the matrices of each block in parts that stay where they are, on batches that all of them see
    both             the last two, on a mesh of processes: sharded one way, tensor parallel the other

Which it is says the launcher: `accelerate launch` sets ACCELERATE_USE_FSDP and PARALLELISM_CONFIG_TP_SIZE from its
configuration file. Accelerate itself shards on accelerators only; torch's own functions are called here, so that the
same code runs, and is proven, on CPUs as well.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import reduce
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import PreTrainedModel

from ....configuration.configuration_transformer import POSITIONS_ENTER
from ....modeling.blocks import TransformerBlock
from ...console.input_error import InputError


@dataclass(frozen=True)
class Layout:
    """Which part of the model and of the data a process has."""

    process_index: int
    num_processes: int

    is_sharded: bool = False
    """Whether parameters, gradients and optimizer states are in parts (Rajbhandari et al. 2019, arXiv 1910.02054; Zhao
    et al. 2023, arXiv 2304.11277)."""

    tensor_parallel: int = 1
    """How many processes, with neighbouring indices, compute each block together (Shoeybi et al. 2019, arXiv
    1909.08053)."""

    @classmethod
    def of(cls, processes: Accelerator | PartialState) -> "Layout":
        """What the launcher asks for.

        Raises:
            InputError: if that does not fit the number of processes.
        """
        number = processes.num_processes
        is_sharded = number > 1 and os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
        tensor_parallel = int(os.environ.get("PARALLELISM_CONFIG_TP_SIZE", "1")) if number > 1 else 1
        if number % tensor_parallel != 0 or (1 < tensor_parallel < number and not is_sharded):
            raise InputError(
                f"parallelism_config_tp_size is {tensor_parallel} on {number} processes; it must be their number, or "
                "with distributed_type FSDP divide it"
            )
        return cls(processes.process_index, number, is_sharded, tensor_parallel)

    @property
    def data_size(self) -> int:
        """How many processes, or groups of them, take batches of their own."""
        return self.num_processes // self.tensor_parallel

    @property
    def data_rank(self) -> int:
        """Which of them this is. Processes of the same rank draw the same random numbers."""
        return self.process_index // self.tensor_parallel

    @property
    def is_whole(self) -> bool:
        """Whether each process has all weights."""
        return not self.is_sharded and self.tensor_parallel == 1

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of what each process has counted in its batches; those that several have seen count once."""
        total: torch.Tensor = reduce(values, "sum") if self.num_processes > 1 else values
        return total / self.tensor_parallel


def distribute(model: PreTrainedModel, layout: Layout, accelerator: Accelerator) -> nn.Module:
    """Puts a model, the same on every process, on the device, for the gradients of all batches to be averaged.

    Optimizers must be built from the parameters afterwards.

    Raises:
        InputError: if the model's blocks cannot be split as the layout says.
    """
    if layout.is_whole:
        prepared: nn.Module = accelerator.prepare_model(model)
        return prepared
    model.to(accelerator.device)
    shape = (layout.data_size, layout.tensor_parallel)
    mesh = init_device_mesh(accelerator.device.type, shape, mesh_dim_names=("data", "tensor"))
    if layout.tensor_parallel > 1:
        split_blocks(model, mesh["tensor"])
    if layout.is_sharded:
        mesh._flatten("all")  # so that norms are summed over both ways at once, to the same bit on every process
        for module in model.modules():
            if isinstance(module, TransformerBlock):
                fully_shard(module, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
        _generate_together(model)
    return model


def _generate_together(model: PreTrainedModel) -> None:
    """Lets the processes of a sharded model generate, all of them from the same inputs."""
    if not model.can_generate():
        return
    together: Any = model
    # A process whose outputs have ended goes on gathering weights for those whose outputs have not.
    together.generate = partial(together.generate, synced_gpus=True)
    # It calls parts of the model by themselves, such as the encoder, which need what belongs to no block.
    register_fsdp_forward_method(model, "generate")


def forget_gathered(model: nn.Module) -> None:
    """Frees the weights that a sharded model has gathered from other processes; they may be out of date."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@contextmanager
def gradient_exchange(model: nn.Module, *, enabled: bool) -> Iterator[None]:
    """A context whose backward passes add to the gradients of this process, and exchange them only if `enabled`."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(enabled)
        yield
    elif enabled or not isinstance(model, nn.parallel.DistributedDataParallel):
        yield
    else:
        with model.no_sync():
            yield


def split_blocks(model: PreTrainedModel, mesh: DeviceMesh) -> None:
    """Splits the matrices of the blocks over the processes of a mesh, by the plan of the model's configuration.

    All that is not in the plan (embeddings, norms, the output layer) is whole on every process, and computed by each.
    Parameters become DTensors, those that are whole as well, since optimizers do not take DTensors and tensors
    together; activations stay plain tensors.

    Raises:
        InputError: if the model cannot be split among so many.
    """
    _check_splits(model, mesh.size())
    styles = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
    config: Any = model.config
    plan = {f"{model.base_model_prefix}.{name}": styles[style]() for name, style in config.base_model_tp_plan.items()}
    parallelize_module(model, mesh, plan)
    for name, module in model.named_modules():
        if any(not isinstance(p, DTensor) for p in module.parameters(recurse=False)):
            # Norms of queries and keys see (B, H, T, D), the heads of this process; all others the same everywhere.
            _compute_whole(module, mesh, Shard(1) if name.endswith(("q_norm", "k_norm")) else Replicate())
    model.tie_weights()


def _compute_whole(module: nn.Module, mesh: DeviceMesh, inputs_are: Placement) -> None:
    """Puts a layer's parameters on every process whole, as DTensors; what it takes and returns stays plain tensors."""

    def wrap(_: nn.Module, inputs: tuple[torch.Tensor, ...], mesh: DeviceMesh) -> tuple[DTensor, ...]:
        return tuple(DTensor.from_local(each, mesh, [inputs_are], run_check=False) for each in inputs)

    def unwrap(_: nn.Module, output: DTensor, mesh: DeviceMesh) -> torch.Tensor:
        return output.to_local()

    distribute_module(module, mesh, input_fn=wrap, output_fn=unwrap)  # type: ignore[arg-type]  # its hooks do return


def _check_splits(model: PreTrainedModel, number: int) -> None:
    """Raises InputError if the blocks cannot be split among so many processes."""
    config: Any = model.config
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        if getattr(config, name) % number != 0:
            raise InputError(
                f"model.{name} is {getattr(config, name)}; with tensor parallelism it must be a multiple of its "
                f"{number} processes"
            )
    if config.base_model_tp_plan is None:
        *others, last = (name for name, place in POSITIONS_ENTER.items() if place != "scores")
        raise InputError(
            f"model.position_embedding_type is {config.position_embedding_type}, a bias for all heads together; with "
            f"tensor parallelism it must be {', '.join(others)} or {last}"
        )
    for name in ("attention_dropout", "activation_dropout"):
        if getattr(config, name) > 0:
            raise InputError(
                f"model.{name} is {getattr(config, name)}; with tensor parallelism it must be 0, because processes "
                "would draw the same for their different heads and units (model.dropout may be what it is)"
            )
    if any(module._compiled_call_impl is not None for module in model.modules()):
        raise InputError(
            "optimization.compile is true; with tensor parallelism it must be false, because torch.compile cannot do "
            "both with batches of any length"
        )
