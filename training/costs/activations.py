"""Memory of what autograd keeps for the backward pass, measured on tensors that have shapes and no content."""

import copy
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from transformers.initialization import no_init_weights
from transformers.modeling_layers import GradientCheckpointingLayer

from ...configuration.configuration_encoder import PaperformerEncoderConfig
from ...configuration.configuration_lm import PaperformerLMConfig
from ...modeling.families import Config, family_of
from .flops import MASKED_SHARE
from .peak_flops import Precision

Attention = Literal["sdpa", "eager"]


class ActivationMemory(NamedTuple):
    """Bytes that a batch's forward pass leaves for its backward pass."""

    kept: int
    """Held from the forward pass until the backward pass comes by."""

    recomputed: int
    """The one block that gradient checkpointing computes again at a time; 0 without it."""


def activation_bytes(
    config: Config,
    batch_size: int,
    length: int,
    source_length: int = 0,
    *,
    precision: Precision = "fp32",
    attention: Attention = "sdpa",
    gradient_checkpointing: bool = False,
    fused: bool = True,
) -> ActivationMemory:
    """Memory of what autograd saves in the forward pass of training: every storage once, parameters not.

    The model reads a batch as its task collates it. Korthikanti et al. (2022, arXiv 2205.05198, section 4.1) derive
    such figures by hand: 34 E T + 5 H T^2 bytes a block of width E with H heads, for T tokens, half precision
    throughout and attention as written. Fused attention ("sdpa") computes the scores again in the backward pass (Dao et
    al. 2022, arXiv 2205.14135), so nothing is quadratic in T but masks and biases of positions.

    In mixed precision the copies of the weights, which autocast makes, live as long as the activations and count.
    Gradient checkpointing (Chen et al. 2016, arXiv 1604.06174) keeps the input of each block, and holds the rest for
    one block at a time. Buffers that live within one operation are left out.

    Args:
        config: of any family.
        batch_size, length, source_length: how many sequences, and how long; padding counts.
        fused: whether attention, dropout and RMSNorm are single operations, as on GPUs; on a CPU a dropout mask is as
            large as what it masks, and RMSNorm saves what it has normalised before it is scaled.
    """
    shapes = {"input_ids": (batch_size, length), "labels": (batch_size, length)}
    if config.is_encoder_decoder:
        shapes["input_ids"] = (batch_size, source_length)
    if isinstance(config, PaperformerEncoderConfig):
        shapes["labels"] = (batch_size, round(MASKED_SHARE * length))
    if not isinstance(config, PaperformerLMConfig):  # whose batches are full of text
        shapes["attention_mask"] = shapes["input_ids"]
    with FakeTensorMode(), _GPUOperations(fused):
        with no_init_weights():
            model = family_of(config.model_type).head(copy.deepcopy(config)).train()
        if attention == "eager" and not config.linear_attention:
            model.set_attn_implementation(attention)
        batch = {name: torch.zeros(shape, dtype=torch.long) for name, shape in shapes.items()}
        # All types of half precision are of one size.
        with torch.autocast("cpu", torch.bfloat16, enabled=precision != "fp32"):
            return _measure(model, batch, gradient_checkpointing)


def _measure(model: torch.nn.Module, batch: dict[str, Tensor], gradient_checkpointing: bool) -> ActivationMemory:
    """What autograd saves while a model reads a batch; with checkpointing, blocks keep only what goes into them."""
    seen = {storage._cdata: storage for storage in (parameter.untyped_storage() for parameter in model.parameters())}
    total, of_blocks = 0, list[int]()

    def save(tensor: Tensor) -> Tensor:
        nonlocal total
        storage = tensor.untyped_storage()
        if storage._cdata not in seen:
            seen[storage._cdata] = storage  # which holds it, so that no other gets its address
            total += storage.nbytes()
        return tensor

    def begin_block(block: torch.nn.Module, inputs: tuple[Tensor | None, ...]) -> None:
        if gradient_checkpointing:
            for tensor in inputs:
                if tensor is not None:
                    save(tensor)
        of_blocks.append(-total)

    def end_block(block: torch.nn.Module, inputs: Any, output: Any) -> None:
        of_blocks[-1] += total

    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.register_forward_pre_hook(begin_block)
            module.register_forward_hook(end_block)
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        model(**batch, return_logits=False)  # as the engine trains it
    if gradient_checkpointing:
        return ActivationMemory(total - sum(of_blocks), max(of_blocks))
    return ActivationMemory(total, 0)


class _GPUOperations(TorchFunctionMode):
    """Runs the operations of GPUs on tensors of the CPU without content, and answers what depends on content.

    The answer is that all tokens are real, and all labels count. RMSNorm runs as a LayerNorm, which saves one number a
    vector more.

    Args:
        fused: whether operations are those of GPUs.
    """

    def __init__(self, fused: bool):
        super().__init__()
        self.replacements: dict[Any, Any] = {Tensor.__bool__: lambda tensor: True, Tensor.__int__: lambda tensor: 0}
        if fused:
            self.replacements |= {
                F.dropout: _drop_out,
                F.layer_norm: _normalise,
                F.rms_norm: _normalise,
                F.scaled_dot_product_attention: _attend,
            }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.replacements.get(func, func)(*args, **kwargs or {})


def _drop_out(x: Tensor, p: float, training: bool, inplace: bool = False) -> Tensor:
    return torch.native_dropout(x, p, training)[0] if training and p > 0 else x


def _normalise(x: Tensor, shape: Any, weight: Tensor, bias: Tensor | None = None, eps: float | None = None) -> Tensor:
    return torch.native_layer_norm(x.float(), shape, weight, bias, eps or 0.0)[0]  # autocast's type on GPUs


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> Tensor:
    query, key = query.to(value.dtype), key.to(value.dtype)  # as autocast does
    if attn_mask is None:
        attend: Any = torch.ops.aten._scaled_dot_product_flash_attention
        return attend(query, key, value, dropout_p, is_causal, scale=scale)[0]
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(attn_mask.logical_not(), -torch.inf)
    bias = attn_mask.to(query.dtype).expand(*query.shape[:3], key.shape[2])
    attend = torch.ops.aten._scaled_dot_product_efficient_attention
    return attend(query, key, value, bias, True, dropout_p, is_causal, scale=scale)[0]
