"""Multi-head attention (Vaswani et al. 2017, section 3.2), for self- and cross-attention.

Shapes: B batch, T query length, S key length, E hidden size, H query heads, G key-value heads, D head width.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .norms import build_norm
from .positions import Rotation, rotate


def eager_attention(
    module: "MultiHeadAttention",
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled dot-product attention as written: softmax(Q K^T / sqrt(D) + mask) V (Vaswani et al. 2017, equation 1).

    This is the implementation that shows its weights; the others of transformers' registry (sdpa, flex, flash) compute
    the same function faster.

    Args:
        query: (B, H, T, D).
        key, value: (B, G, S, D); each of the G heads serves H/G query heads.
        attention_mask: added to the scores, (B, 1, T, S): 0 or a very negative number.
        position_bias: added to the scores too, (B or 1, H, T, S): ALiBi or relative positions.

    Returns:
        The attended values, (B, T, H, D), and the attention weights, (B, H, T, S).
    """
    key = key.repeat_interleave(module.num_key_value_groups, dim=1)  # (B, H, S, D)
    value = value.repeat_interleave(module.num_key_value_groups, dim=1)  # (B, H, S, D)
    scores = query @ key.transpose(-2, -1) * scaling  # (B, H, T, S)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights  # (B, T, H, D)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O (Vaswani et al. 2017, section 3.2.2).

    Keys and values come from the same states as the queries (self-attention) or from the encoder (cross-attention).
    With fewer key-value than query heads it is grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245). With
    `qk_norm` queries and keys are normalised head by head, before they are turned by RoPE.

    Args:
        config: the model's configuration.
        layer_idx: index of the block in its stack, which is its place in the cache.
        is_causal: whether a position may only see earlier ones when no mask is given.
        sliding_window: how far it sees; for flash attention, which is told so instead of being given a mask.
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int, *, is_causal: bool, sliding_window: int | None = None):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.sliding_window = sliding_window
        self.head_dim = config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = config.head_dim**-0.5
        self.attention_dropout = config.attention_dropout
        query_width = config.num_attention_heads * config.head_dim
        key_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_width, bias=config.use_bias)
        self.k_proj = nn.Linear(config.hidden_size, key_width, bias=config.use_bias)
        self.v_proj = nn.Linear(config.hidden_size, key_width, bias=config.use_bias)
        self.o_proj = nn.Linear(query_width, config.hidden_size, bias=config.use_bias)
        self.o_proj.writes_to_residual = True  # type: ignore[assignment]  # a mark for the gpt2 initialisation
        self.q_norm = build_norm(config, config.head_dim) if config.qk_norm else nn.Identity()
        self.k_norm = build_norm(config, config.head_dim) if config.qk_norm else nn.Identity()

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        rotation: Rotation | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Args:
            hidden_states: where queries come from, (B, T, E).
            encoder_hidden_states: where keys and values come from in cross-attention, (B, S, E); None: self-attention.
                With fewer rows, each is for several in turn of the queries: a sentence for its beams.
            attention_mask: as made by `transformers.masking_utils` for the chosen implementation; None: none needed.
            rotation: cosines and sines of RoPE, each (B, T, D), for self-attention.
            past_key_values: keys and values of earlier positions, extended in place.
            kwargs: for the attention implementation, such as `position_bias`, (B or 1, H, T, S).

        Returns:
            The output, (B, T, E), and the attention weights, (B, H, T, S), where the implementation keeps them.
        """
        query = self.q_norm(self._split_heads(self.q_proj(hidden_states)))  # (B, H, T, D)
        if encoder_hidden_states is not None:
            key, value = self._encoder_key_value(encoder_hidden_states, past_key_values)
            query = _share_rows(query, len(key))
        else:
            key = self.k_norm(self._split_heads(self.k_proj(hidden_states)))  # (B, G, T, D)
            value = self._split_heads(self.v_proj(hidden_states))  # (B, G, T, D)
            if rotation is not None:
                query, key = rotate(query, rotation), rotate(key, rotation)
            if isinstance(past_key_values, EncoderDecoderCache):
                past_key_values = past_key_values.self_attention_cache
            if past_key_values is not None:
                key, value = past_key_values.update(key, value, self.layer_idx)  # (B, G, S, D)

        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention)
        output, weights = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            sliding_window=self.sliding_window,
            **kwargs,
        )
        if weights is not None and len(weights) != len(hidden_states):
            weights = _own_rows(weights, len(hidden_states))
        # From (B, T, H, D), from the shared rows (R, k T, H, D), or as vLLM gives it, (T, H D) of a single row.
        return self.o_proj(output.reshape(*hidden_states.shape[:2], -1)), weights  # (B, T, E)

    def _split_heads(self, states: torch.Tensor) -> torch.Tensor:
        return states.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, T, H*D) -> (B, H, T, D)

    def _encoder_key_value(
        self, encoder_hidden_states: torch.Tensor, past_key_values: Cache | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the source, each (B, G, S, D): computed at the first step, then read from the cache."""
        if isinstance(past_key_values, EncoderDecoderCache) and past_key_values.is_updated.get(self.layer_idx):
            layer: Any = past_key_values.cross_attention_cache.layers[self.layer_idx]
            return layer.keys, layer.values
        key = self.k_norm(self._split_heads(self.k_proj(encoder_hidden_states)))
        value = self._split_heads(self.v_proj(encoder_hidden_states))
        if isinstance(past_key_values, EncoderDecoderCache):
            key, value = past_key_values.cross_attention_cache.update(key, value, self.layer_idx)
            past_key_values.is_updated[self.layer_idx] = True
        return key, value


def _share_rows(query: torch.Tensor, rows: int) -> torch.Tensor:
    """Puts the queries of several rows into one, behind each other: (R k, H, T, D) -> (R, H, k T, D)."""
    return query if len(query) == rows else query.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)


def _own_rows(weights: torch.Tensor, rows: int) -> torch.Tensor:
    """Undoes that for what has come of them: (R, H, k T, S) -> (R k, H, T, S)."""
    return weights.unflatten(2, (rows // len(weights), -1)).transpose(1, 2).flatten(0, 1)
