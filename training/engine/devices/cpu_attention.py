"""Attention for training in half precision on a CPU: its softmax stays in float32.

Matrix products in bfloat16 are twice as fast as in float32 on CPUs that have instructions for them, but torch's
fused attention for CPUs is not: the backward pass of 128 sequences of 16 tokens takes five times as long. So
short sequences take the formula step by step, products in bfloat16 and the softmax in float32, which makes a step of
transformer-base on 32 tokens 3 to 5 % faster than attention in float32 throughout. Long ones, whose scores would fill
the memory, take torch's fused attention in float32, and so does float16.
"""

from typing import Any

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ....modeling.attention import eager_attention

SDPA_FLOAT32 = "sdpa_float32"
"""The name of this implementation, for `model.set_attn_implementation`."""

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
    length, source_length = query.shape[2], key.shape[2]
    # Before they are scaled, scores may be beyond float16's range.
    if length * source_length > MAX_SCORES or query.dtype == torch.float16:
        with torch.autocast(query.device.type, enabled=False):
            return sdpa_attention_forward(module, query.float(), key.float(), value.float(), attention_mask, **kwargs)
    if attention_mask is None and module.is_causal and length > 1:
        attention_mask = torch.ones(length, source_length, dtype=torch.bool, device=query.device).tril()
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        hidden = torch.finfo(torch.float32).min
        attention_mask = torch.zeros_like(attention_mask, dtype=torch.float32).masked_fill_(~attention_mask, hidden)
    output, _ = eager_attention(module, query, key, value, attention_mask, **kwargs)
    return output, None


ALL_ATTENTION_FUNCTIONS.register(SDPA_FLOAT32, sdpa_float32)
ALL_MASK_ATTENTION_FUNCTIONS.register(SDPA_FLOAT32, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
