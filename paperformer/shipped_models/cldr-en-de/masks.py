"""Which positions self-attention sees: all, all earlier ones, the near ones, or every so many.

Causality and padding are transformers' masks, made for the attention implementation in use; local and strided patterns
are functions laid on top of them. A mask of None means that the implementation needs none: the fast path.
"""

from collections.abc import Callable

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache
from transformers.masking_utils import BlockMask, create_bidirectional_mask, create_causal_mask, or_masks

Mask = torch.Tensor | BlockMask | None
"""What an attention implementation takes: (B, 1, T, S), numbers to add for eager or booleans for sdpa; flex attention's
own form; (B, S) for flash attention and linear attention; or None."""

MaskFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(batch, head, query place, key place) -> whether the query sees the key, all index tensors that broadcast."""


def local_pattern(window: int) -> MaskFunction:
    """Sees what is less than `window` away (Child et al. 2019, arXiv 1904.10509; Beltagy et al. 2020)."""
    return lambda batch, head, query, key: (query - key).abs() < window


def strided_pattern(stride: int) -> MaskFunction:
    """Sees what is a multiple of `stride` away (Child et al. 2019, section 4.2)."""
    return lambda batch, head, query, key: (query - key) % stride == 0


def attention_pattern(config: PreTrainedConfig) -> MaskFunction | None:
    """The union of the patterns that a configuration asks for; None if it restricts nothing."""
    patterns = []
    if config.attention_window is not None:
        patterns.append(local_pattern(config.attention_window))
    if config.attention_stride is not None:
        patterns.append(strided_pattern(config.attention_stride))
    return or_masks(*patterns) if patterns else None


def causal_mask(
    config: PreTrainedConfig,
    inputs_embeds: torch.Tensor,
    attention_mask: torch.Tensor | None,
    past_key_values: Cache | None,
    position_ids: torch.Tensor | None = None,
) -> Mask:
    """The mask of self-attention that only looks back, in the form that the attention implementation wants.

    Args:
        inputs_embeds: (B, T, any), for shape, type and device.
        attention_mask: (B, past + T), 1 for real tokens; a prepared 4D mask is returned as it is.
        past_key_values: the cache, before this step's keys are added.
        position_ids: (B, T), where several sequences that each start at 0 may lie in one row; they are kept apart.
    """
    return create_causal_mask(
        config=config,
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        past_key_values=past_key_values,
        position_ids=position_ids,
        and_mask_function=attention_pattern(config),
    )


def bidirectional_mask(
    config: PreTrainedConfig, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None
) -> Mask:
    """The mask of self-attention that looks both ways. Arguments as for `causal_mask`."""
    return create_bidirectional_mask(
        config=config,
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        and_mask_function=attention_pattern(config),
    )


def cross_attention_mask(
    config: PreTrainedConfig,
    inputs_embeds: torch.Tensor,
    encoder_hidden_states: torch.Tensor,
    encoder_attention_mask: torch.Tensor | None,
) -> Mask:
    """The mask of attention to a source: its padding, (B, S), is hidden, and nothing else."""
    return create_bidirectional_mask(
        config=config,
        inputs_embeds=inputs_embeds,
        attention_mask=encoder_attention_mask,
        encoder_hidden_states=encoder_hidden_states,
    )
