"""How the model lies on the processes of a run: whole on one, whole on each (DDP), or in parts (FSDP2).

Which it is says the launcher: `accelerate launch` sets ACCELERATE_USE_FSDP from its configuration file. Accelerate
itself shards on accelerators only; `fully_shard` of torch is called here, so that the same code runs, and is proven, on
processors as well.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from accelerate import Accelerator
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import PreTrainedModel

from ...modeling.blocks import TransformerBlock


def is_sharded(accelerator: Accelerator) -> bool:
    """Whether the launcher asks for parameters, gradients and optimizer states in parts (Rajbhandari et al. 2019,
    arXiv 1910.02054; Zhao et al. 2023, arXiv 2304.11277).
    """
    return accelerator.num_processes > 1 and os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def distribute(model: PreTrainedModel, accelerator: Accelerator) -> torch.nn.Module:
    """Puts a model, the same on every process, on the device, for the gradients of all processes to be averaged.

    With FSDP2 each block is a unit whose parameters are gathered when it computes. Optimizers must be built from the
    parameters afterwards.
    """
    if not is_sharded(accelerator):
        prepared: torch.nn.Module = accelerator.prepare_model(model)
        return prepared
    model.to(accelerator.device)
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    for module in model.modules():
        if isinstance(module, TransformerBlock):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


@contextmanager
def gradient_exchange(model: torch.nn.Module, *, enabled: bool) -> Iterator[None]:
    """A context whose backward passes add to the gradients of this process, and exchange them only if `enabled`."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(enabled)
        yield
    elif enabled or not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        yield
    else:
        with model.no_sync():
            yield
