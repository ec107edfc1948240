"""The optimizers: how each is made, which parameters it decays, and what it keeps of them.

Another one is a function here with a place in `OPTIMIZERS`, and its name in `recipe/optimization.py`.
"""

import math
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ...modeling.blocks import TransformerBlock
from ..console.input_error import InputError
from ..recipe.optimization import Optimization
from .schedule_free import ScheduleFreeAdamW

FUSED_DEVICES = ("cpu", "cuda")


def build_optimizers(model: nn.Module, options: Optimization) -> list[torch.optim.Optimizer]:
    """The optimizer that `options.optimizer` names; muon comes with an AdamW for what is no matrix of a block.

    Their learning rate is 0 until `set_learning_rate`. Parameters may be DTensors, sharded over processes: a step is
    then the same as on one process (of muon up to the rounding of its bfloat16).

    Raises:
        InputError: if the optimizer is adafactor and parameters are sharded.
    """
    return OPTIMIZERS[options.optimizer](model, options)


def _build_adam(
    model: nn.Module,
    options: Optimization,
    kind: type[torch.optim.Adam] = torch.optim.Adam,
    others: AbstractSet[torch.Tensor] = frozenset(),
) -> list[torch.optim.Optimizer]:
    """An Adam, or an AdamW, for all that is trained but what is in `others`."""
    betas = (options.adam_beta1, options.adam_beta2)
    fused = all(p.device.type in FUSED_DEVICES for p in _trained(model))
    return [kind(_groups(model, options, others), lr=0.0, betas=betas, eps=options.adam_epsilon, fused=fused)]


def _build_adafactor(model: nn.Module, options: Optimization) -> list[torch.optim.Optimizer]:
    if any(isinstance(p, DTensor) for p in _trained(model)):  # of which torch takes no norms in place
        raise InputError(
            "optimization.optimizer is adafactor, which cannot train weights that are sharded over processes; "
            "with FSDP and with tensor parallelism it must be adamw, adam, muon or schedule_free"
        )
    return [torch.optim.Adafactor(_groups(model, options), lr=0.0)]


def _build_muon(model: nn.Module, options: Optimization) -> list[torch.optim.Optimizer]:
    matrices = _linear_weights(block for block in model.modules() if isinstance(block, TransformerBlock))
    recurrent = [layer for layer in model.modules() if isinstance(layer, nn.RNNBase)]  # exercises compare with them
    matrices |= {p for layer in recurrent for p in layer.parameters() if p.dim() == 2}
    muon = torch.optim.Muon(
        [p for p in _trained(model) if p in matrices],
        lr=0.0,
        weight_decay=options.weight_decay,
        momentum=options.muon_momentum,
        # Updates as large as AdamW's, so that one learning rate is right for both (Liu et al. 2025, arXiv 2502.16982,
        # section 2.2).
        adjust_lr_fn="match_rms_adamw",
    )
    return [muon, *_build_adam(model, options, torch.optim.AdamW, matrices)]


def _build_schedule_free(model: nn.Module, options: Optimization) -> list[torch.optim.Optimizer]:
    betas = (options.adam_beta1, options.adam_beta2)
    return [ScheduleFreeAdamW(_groups(model, options), lr=0.0, betas=betas, eps=options.adam_epsilon)]


OPTIMIZERS: dict[str, Callable[[nn.Module, Optimization], list[torch.optim.Optimizer]]] = {
    "adamw": partial(_build_adam, kind=torch.optim.AdamW),
    "adam": _build_adam,
    "adafactor": _build_adafactor,
    "muon": _build_muon,
    "schedule_free": _build_schedule_free,
}


def set_learning_rate(optimizers: Iterable[torch.optim.Optimizer], rate: float) -> None:
    """Gives all parameters of the next step the same learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate


def optimizer_state_bytes(optimizers: Iterable[torch.optim.Optimizer]) -> int:
    """What optimizers will keep on this process, from their first step on; of a sharded parameter for its shard."""
    return sum(
        _state_bytes(optimizer, p.to_local() if isinstance(p, DTensor) else p)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for p in group["params"]
    )


def _state_bytes(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> int:
    """Adam has means of gradients and of their squares, schedule-free AdamW a sequence of weights and such a mean of
    squares, Muon a sum of gradients, Adafactor a mean of squares for each row and each column of a matrix (Shazeer and
    Stern 2018, section 4).
    """
    numbers = 2 * parameter.numel()
    if isinstance(optimizer, torch.optim.Muon):
        numbers = parameter.numel()
    elif isinstance(optimizer, torch.optim.Adafactor):
        rows, columns = parameter.shape[-2:] if parameter.dim() > 1 else (parameter.numel(), 0)
        numbers = math.prod(parameter.shape[:-2]) * (rows + columns)
    return numbers * parameter.element_size()


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def _groups(
    model: nn.Module, options: Optimization, others: AbstractSet[torch.Tensor] = frozenset()
) -> list[dict[str, Any]]:
    """All that is trained but `others`: the matrices of linear layers, which are decayed, and what is not.

    A matrix that is an embedding as well, by tied weights, counts as an embedding.
    """
    embeddings = {layer.weight for layer in model.modules() if isinstance(layer, nn.Embedding)}
    decayed = _linear_weights([model]) - embeddings
    parameters = [p for p in _trained(model) if p not in others]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p in decayed], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if p not in decayed], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]  # checkpoints cannot hold empty ones


def _linear_weights(modules: Iterable[nn.Module]) -> set[torch.Tensor]:
    """The matrices of all linear layers in `modules`."""
    return {layer.weight for module in modules for layer in module.modules() if isinstance(layer, nn.Linear)}
