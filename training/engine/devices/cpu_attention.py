"""Attention for training in half precision on a CPU: its softmax stays in float32.

Matrix products in bfloat16 are twice as fast as in float32 on CPUs that have instructions for them, but torch's
fused attention for CPUs is not: the backward pass of 128 sequences of 16 tokens takes five times as long. So
short sequences take the formula step by step, products in bfloat16 and the softmax in float32, which makes a step of
transformer-base on 32 tokens 3 to 5 % faster than attention in float32 throughout. Long ones, whose scores would fill
the memory, take torch's fused attention in float32, and so does float16.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ....modeling.attention import eager_attention
from ....modeling.dropout import Dropout
from ...console.input_error import InputError

SDPA_FLOAT32 = "sdpa_float32"
"""The name of this implementation, for `model.set_attn_implementation`."""

FAST = "fast_attention"
"""The name of that of `optimization.fast_attention`."""

# Scores of one head and sequence, T * S. The backward pass keeps 6 bytes for each: with 8 heads and sequences of 256,
# 50 MB a layer for 4,096 tokens.
MAX_SCORES = 256 * 256


def sdpa_float32(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' sdpa attention with a softmax in float32 whatever autocast says.

    Arguments and results are the same: queries (B, H, T, D), keys and values (B, G, S, D), a mask (B, 1, T, S) that is
    True where a query sees a key, and None where all, or with `module.is_causal` all earlier ones, are seen.
    """
    # Before they are scaled, scores may be beyond float16's range.
    if query.shape[2] * key.shape[2] > MAX_SCORES or query.dtype == torch.float16:
        with torch.autocast(query.device.type, enabled=False):
            return sdpa_attention_forward(module, query.float(), key.float(), value.float(), attention_mask, **kwargs)
    mask = _numbers_to_add(module, query, key, attention_mask, torch.float32)
    output, _ = eager_attention(module, query, key, value, mask, **kwargs)
    return output, None


def fast_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention by its formula in as few passes over the scores as torch can, with the dropout of `modeling.dropout`.

    With dropout only, which torch's fused attention for CPUs cannot do. Elsewhere, and with biases, it is what
    `fast_attention false` has. Arguments and results are those of `sdpa_float32`; the softmax is computed in float32
    here as well, and rounded to bfloat16 in the same pass.
    """
    is_cast = torch.is_autocast_enabled(query.device.type)
    dtype = torch.get_autocast_dtype(query.device.type) if is_cast else query.dtype
    if dropout == 0 or not module.training or position_bias is not None:
        kwargs |= {"scaling": scaling, "dropout": dropout, "position_bias": position_bias}
        usual = sdpa_float32 if is_cast else sdpa_attention_forward
        return usual(module, query, key, value, attention_mask, **kwargs)
    with torch.autocast(query.device.type, enabled=False):
        mask = _numbers_to_add(module, query, key, attention_mask, dtype)
        if module.num_key_value_groups > 1:
            key, value = (states.repeat_interleave(module.num_key_value_groups, dim=1) for states in (key, value))
        rows = [states.to(dtype).flatten(0, 1) for states in (query, key, value)]  # (B*H, T, D), (B*H, S, D) twice
        nothing = rows[0].new_empty(())
        scores = torch.baddbmm(nothing, rows[0], rows[1].transpose(1, 2), beta=0, alpha=scaling)  # (B*H, T, S)
        if mask is not None:
            scores.unflatten(0, query.shape[:2]).add_(mask)
        weights = Dropout(dropout)(scores.softmax(dim=-1))
        output = torch.bmm(weights, rows[2])  # (B*H, T, D)
    return output.unflatten(0, query.shape[:2]).transpose(1, 2), None


def _numbers_to_add(
    module: Any, query: Tensor, key: Tensor, attention_mask: Tensor | None, dtype: torch.dtype
) -> Tensor | None:
    """The mask as numbers to add to the scores, 0 or the most negative; causal where that is left to the module."""
    length, source_length = query.shape[2], key.shape[2]
    if attention_mask is None and module.is_causal and length > 1:
        attention_mask = torch.ones(length, source_length, dtype=torch.bool, device=query.device).tril()
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        hidden = torch.finfo(dtype).min
        attention_mask = torch.zeros_like(attention_mask, dtype=dtype).masked_fill_(~attention_mask, hidden)
    return attention_mask


def use_fast_attention(model: PreTrainedModel, device: torch.device) -> None:
    """Gives a model on a device `fast_attention`, where its attention is torch's.

    Raises:
        InputError: if the device is not a CPU.
    """
    if device.type != "cpu":
        raise InputError(f"optimization.fast_attention is true and the device is {device.type}; there it must be false")
    if model.config._attn_implementation in ("sdpa", SDPA_FLOAT32):
        model.set_attn_implementation(FAST)


ALL_ATTENTION_FUNCTIONS.register(SDPA_FLOAT32, sdpa_float32)
ALL_ATTENTION_FUNCTIONS.register(FAST, fast_attention)
for name in (SDPA_FLOAT32, FAST):
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
