"""The optimizers, and which parameters they decay."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ...modeling.blocks import TransformerBlock
from ..input_error import InputError
from ..options.optimization import Optimization

FUSED_DEVICES = ("cpu", "cuda")


def build_optimizers(model: nn.Module, options: Optimization) -> list[torch.optim.Optimizer]:
    """The optimizer that `options.optimizer` names; muon comes with an AdamW for what is no matrix of a block.

    Their learning rate is 0 until `set_learning_rate`. Parameters may be DTensors, sharded over processes: a step is
    then the same as on one process (of muon up to the rounding of its bfloat16).

    Raises:
        InputError: if the optimizer is adafactor and parameters are sharded.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    decayed = _decayed(model)
    fused = all(p.device.type in FUSED_DEVICES for p in parameters)
    adam: dict[str, Any] = {
        "lr": 0.0,
        "betas": (options.adam_beta1, options.adam_beta2),
        "eps": options.adam_epsilon,
        "fused": fused,
    }

    def groups(of: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
        of = list(of)
        all_groups = [
            {"params": [p for p in of if p in decayed], "weight_decay": options.weight_decay},
            {"params": [p for p in of if p not in decayed], "weight_decay": 0.0},
        ]
        return [group for group in all_groups if group["params"]]  # checkpoints cannot hold empty ones

    if options.optimizer == "adamw":
        return [torch.optim.AdamW(groups(parameters), **adam)]
    if options.optimizer == "adam":
        return [torch.optim.Adam(groups(parameters), **adam)]
    if options.optimizer == "adafactor":
        if any(isinstance(p, DTensor) for p in parameters):  # of which torch takes no norms in place
            raise InputError(
                "optimization.optimizer is adafactor, which cannot train weights that are sharded over processes; "
                "with FSDP and with tensor parallelism it must be adamw, adam or muon"
            )
        return [torch.optim.Adafactor(groups(parameters), lr=0.0)]
    matrices = _linear_weights(block for block in model.modules() if isinstance(block, TransformerBlock))
    muon = torch.optim.Muon(
        [p for p in parameters if p in matrices],
        lr=0.0,
        weight_decay=options.weight_decay,
        momentum=options.muon_momentum,
        # Updates as large as AdamW's, so that one learning rate is right for both (Liu et al. 2025, arXiv 2502.16982,
        # section 2.2).
        adjust_lr_fn="match_rms_adamw",
    )
    return [muon, torch.optim.AdamW(groups(p for p in parameters if p not in matrices), **adam)]


def set_learning_rate(optimizers: Iterable[torch.optim.Optimizer], rate: float) -> None:
    """Gives all parameters of the next step the same learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate


def _linear_weights(modules: Iterable[nn.Module]) -> set[torch.Tensor]:
    """The matrices of all linear layers in `modules`."""
    return {layer.weight for module in modules for layer in module.modules() if isinstance(layer, nn.Linear)}


def _decayed(model: nn.Module) -> set[torch.Tensor]:
    """The matrices of linear layers; one that is an embedding as well, by tied weights, counts as an embedding."""
    embeddings = {layer.weight for layer in model.modules() if isinstance(layer, nn.Embedding)}
    return _linear_weights([model]) - embeddings
