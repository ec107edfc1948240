"""The Transformer block: sub-layers, the residual connections around them, and the place of their norms.

Shapes: B batch, T length, S source length, E hidden size.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import MultiHeadAttention
from .dropout import Dropout
from .feed_forward import FeedForward
from .norms import build_norm
from .positions import Rotation

SubLayer = Callable[[torch.Tensor], torch.Tensor]


class PostNormResidual(nn.Module):
    """x -> Norm(x + Dropout(f(x))), as in the original paper (Vaswani et al. 2017, section 3.1)."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: torch.Tensor, sub_layer: SubLayer) -> torch.Tensor:
        return self.norm(x + self.dropout(sub_layer(x)))


class PreNormResidual(PostNormResidual):
    """x -> x + Dropout(f(Norm(x))): an unbroken residual stream (Xiong et al. 2020, arXiv 2002.04745)."""

    def forward(self, x: torch.Tensor, sub_layer: SubLayer) -> torch.Tensor:
        return x + self.dropout(sub_layer(self.norm(x)))


class PeriNormResidual(PostNormResidual):
    """x -> x + Dropout(Norm(f(Norm(x)))): Peri-LN (Kim et al. 2025, arXiv 2502.02732)."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.output_norm = build_norm(config)

    def forward(self, x: torch.Tensor, sub_layer: SubLayer) -> torch.Tensor:
        return x + self.dropout(self.output_norm(sub_layer(self.norm(x))))


RESIDUALS = {"post": PostNormResidual, "pre": PreNormResidual, "peri": PeriNormResidual}


def build_final_norm(config: PreTrainedConfig) -> nn.Module:
    """The norm at the end of a stack: needed wherever the residual stream itself is never normalised."""
    return nn.Identity() if config.norm_position == "post" else build_norm(config)


class TransformerBlock(GradientCheckpointingLayer):
    """One layer of an encoder, of a decoder, or of a language model: they differ only in what may see what.

    The residual stream (with pre-norm; `norm_position` moves the norms):

        x ──┬─ Norm ─ self-attention ── + ──┬─ Norm ─ cross-attention ── + ──┬─ Norm ─ feed-forward ── + ── x'
            └───────────────────────────┘   └────(decoder only)──────────┘   └─────────────────────────┘

    Args:
        config: the model's configuration.
        layer_idx: index of the block in its stack.
        is_causal: whether self-attention may only look back.
        cross_attention: whether the block also attends to an encoder's output.
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int, *, is_causal: bool, cross_attention: bool = False):
        super().__init__()
        residual = RESIDUALS[config.norm_position]
        self.self_attn = MultiHeadAttention(
            config, layer_idx, is_causal=is_causal, sliding_window=config.attention_window
        )
        self.self_attn_residual = residual(config)
        self.has_cross_attention = cross_attention
        if cross_attention:
            self.cross_attn = MultiHeadAttention(config, layer_idx, is_causal=False)
            self.cross_attn_residual = residual(config)
        self.mlp = FeedForward(config)
        self.mlp_residual = residual(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        rotation: Rotation | None = None,
        position_bias: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """(B, T, E) and, for a decoder, the encoder's (B, S, E) -> (B, T, E)."""

        def self_attention(x: torch.Tensor) -> torch.Tensor:
            return self.self_attn(
                x,
                attention_mask=attention_mask,
                rotation=rotation,
                position_bias=position_bias,
                past_key_values=past_key_values,
                **kwargs,
            )[0]

        def cross_attention(x: torch.Tensor) -> torch.Tensor:
            return self.cross_attn(
                x,
                encoder_hidden_states,
                attention_mask=encoder_attention_mask,
                past_key_values=past_key_values,
                **kwargs,
            )[0]

        x = self.self_attn_residual(hidden_states, self_attention)
        if self.has_cross_attention:
            x = self.cross_attn_residual(x, cross_attention)
        return self.mlp_residual(x, self.mlp)
