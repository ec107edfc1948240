"""Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236): softmax's kernel replaced by a product of features.

    softmax attention     out_i = sum_j exp(q_i k_j / sqrt(D)) v_j / sum_j exp(q_i k_j / sqrt(D))
    linear attention      out_i = phi(q_i) (sum_j phi(k_j) v_j^T) / (phi(q_i) sum_j phi(k_j)),  phi(x) = elu(x) + 1

The sums over j no longer depend on i: computed once, or carried along from left to right, they make time and memory
grow linearly with the length. It is registered with transformers as an attention implementation, "linear_attention",
together with the masks that it needs. As it computes another function than the others, a model is made for it
(`linear_attention` in its configuration); it is not chosen when a model is loaded.

Shapes: B batch, T query length, S key length, H query heads, G key-value heads, D head width, N chunks of C positions.
"""

from typing import Any

import torch
from torch import nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, bidirectional_mask_function, causal_mask_function
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

LINEAR_ATTENTION = "linear_attention"
CHUNK_SIZE = 64  # positions; within a chunk causal attention costs C^2, between chunks D^2 for each chunk


def feature_map(x: torch.Tensor) -> torch.Tensor:
    """phi(x) = elu(x) + 1 > 0, element by element (Katharopoulos et al. 2020, equation 7)."""
    return nn.functional.elu(x) + 1


def linear_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in time and memory linear in T and S, causal where `module.is_causal`.

    Sums over positions are kept in float32 at least, because they grow with the length.

    Args:
        query: (B, H, T, D), the last T of the S positions where attention is causal.
        key, value: (B, G, S, D); each of the G heads serves H/G query heads.
        attention_mask: (B, seen), whether each of the first keys is a real token; keys after them are not looked at.
            None: all are.

    Returns:
        The attended values, (B, T, H, D), and no weights, for none are ever computed.
    """
    dtype, wide = query.dtype, torch.promote_types(query.dtype, torch.float32)
    groups = query.shape[1] // key.shape[1]
    with torch.autocast(query.device.type, enabled=False):
        query, key = feature_map(query.to(wide)), feature_map(key.to(wide))
        value = value.to(wide)
        if attention_mask is not None:
            seen = attention_mask.shape[1]
            key, value = key[:, :, :seen] * attention_mask[:, None, :, None], value[:, :, :seen]
        key = key.repeat_interleave(groups, dim=1)  # (B, H, S, D)
        # A column of ones beside the values: its sum is the denominator.
        value = nn.functional.pad(value, (0, 1), value=1.0).repeat_interleave(groups, dim=1)  # (B, H, S, D + 1)
        if getattr(module, "is_causal", False) and query.shape[2] > 1:
            sums = _causal_sums(query, key, value)
        else:
            sums = query @ (key.transpose(-2, -1) @ value)  # (B, H, T, D + 1)
        total = sums[..., -1:]
        output = sums[..., :-1] / torch.where(total > 0, total, 1)  # 0 where there is nothing to see
    return output.to(dtype).transpose(1, 2).contiguous(), None  # (B, T, H, D)


def _causal_sums(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """sum_{j <= i} (q_i k_j) v_j for the last T of S positions: (B, H, T, D), (B, H, S, D) twice -> (B, H, T, D).

    What came before a chunk is summed up in one (D, D) matrix (equation 10); within a chunk the scores are computed
    as in softmax attention, and masked.
    """
    length = query.shape[2]
    past = key.shape[2] - length
    earlier = key[:, :, :past].transpose(-2, -1) @ value[:, :, :past]  # (B, H, D, D)
    padding = -length % CHUNK_SIZE
    query, key, value = (
        nn.functional.pad(states, (0, 0, 0, padding)).unflatten(2, (-1, CHUNK_SIZE))  # (B, H, N, C, D)
        for states in (query, key[:, :, past:], value[:, :, past:])
    )
    of_chunks = key.transpose(-2, -1) @ value  # (B, H, N, D, D)
    before = earlier.unsqueeze(2) + of_chunks.cumsum(2) - of_chunks  # (B, H, N, D, D)
    within = (query @ key.transpose(-2, -1)).tril() @ value  # (B, H, N, C, D)
    return (query @ before + within).flatten(2, 3)[:, :, :length]


def linear_attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> torch.Tensor | None:
    """Which keys are real tokens, (B, seen); None where all are. Causality is up to `linear_attention` itself.

    Raises:
        ValueError: for any pattern but plain causal and bidirectional ones, such as several sequences in one row.
    """
    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        raise ValueError(
            "linear attention sums over all positions at once, so it can neither keep several sequences in a row apart "
            "nor follow another pattern; give each sequence its own row, with an attention_mask"
        )
    if mask_function is bidirectional_mask_function or q_length > 1:
        # A static cache has places that no token has taken yet, after those that are looked at.
        seen = kv_length if mask_function is bidirectional_mask_function else int(q_offset) + q_length
        if attention_mask is None:
            return None if seen == kv_length else torch.ones(batch_size, seen, dtype=torch.bool, device=device)
        attention_mask = attention_mask[:, :seen]
        # Whether all are real is asked of the values, on which a compiled graph cannot branch.
        fast = seen == kv_length and not torch.compiler.is_compiling() and attention_mask.all()
        return None if fast else attention_mask
    taken = (torch.arange(kv_length, device=device) <= q_offset).expand(batch_size, -1)  # (B, S)
    if attention_mask is None:
        return taken
    return taken & nn.functional.pad(attention_mask, (0, kv_length - attention_mask.shape[1]))


ALL_ATTENTION_FUNCTIONS.register(LINEAR_ATTENTION, linear_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(LINEAR_ATTENTION, linear_attention_mask)
