"""A stack of Transformer blocks with embeddings below it: what the three families have in common.

Shapes: B batch, T length, S source length, E hidden size.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache

from .blocks import TransformerBlock, build_final_norm
from .dropout import Dropout
from .linear_attention import LINEAR_ATTENTION
from .norms import build_norm
from .positions import build_positions, position_ids_from_mask
from .pretrained import PaperformerPreTrainedModel


class TransformerStack(PaperformerPreTrainedModel):
    """Token ids -> hidden states. An encoder, a decoder and a language model differ in their masks only.

    ids ── embedding (* sqrt(E)) ── + positions ── (norm) ── dropout ── N x block ── norm ── hidden states

    Args:
        config: the model's configuration.
        num_layers: N.
        is_causal: whether a position only sees earlier ones.
        cross_attention: whether the blocks also attend to an encoder's output.
    """

    def __init__(
        self, config: PreTrainedConfig, num_layers: int, *, is_causal: bool = False, cross_attention: bool = False
    ):
        super().__init__(config)
        self.residual_additions = (3 if cross_attention else 2) * num_layers
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed_scale = config.hidden_size**0.5 if config.scale_embedding else 1.0
        self.positions = build_positions(config, is_causal=is_causal)
        self.embed_norm = build_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            TransformerBlock(config, i, is_causal=is_causal, cross_attention=cross_attention) for i in range(num_layers)
        )
        self.norm = build_final_norm(config)

    def embed(
        self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, prefix: str = ""
    ) -> torch.Tensor:
        """Scaled embeddings, (B, T, E), of token ids, (B, T), or of embeddings that the caller has chosen.

        Raises:
            ValueError: if not exactly one of the two is given; the message puts `prefix` before their names.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(f"give either {prefix}input_ids or {prefix}inputs_embeds, and not both")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        return inputs_embeds if self.embed_scale == 1.0 else inputs_embeds * self.embed_scale

    def run_blocks(
        self,
        embeddings: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        *,
        padding_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Everything after the embeddings, (B, T, E) -> (B, T, E).

        Args:
            encoder_hidden_states: the encoder's output, (B, S, E), for cross-attention.
            padding_mask: (B, past + T), 1 for real tokens, from which positions are counted; None: all are real.
            position_ids: (B, T) or (1, T); None: counted, so that padding does not move them.
            past_key_values: keys and values of earlier positions, extended in place.
            kwargs: for the blocks, the masks of their attentions among them.

        Raises:
            ValueError: if the attention implementation was set behind the model's back, to one of another function.
        """
        if (self.config._attn_implementation == LINEAR_ATTENTION) is not self.config.linear_attention:
            raise ValueError(
                f"the attention implementation was set to {self.config._attn_implementation!r} by hand, but "
                f"linear_attention is {self.config.linear_attention}; use model.set_attn_implementation(...)"
            )
        if position_ids is None:
            past_length = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = position_ids_from_mask(padding_mask, embeddings.shape[1], past_length, embeddings.device)
        hidden_states = self.dropout(self.embed_norm(self.positions.add_to(embeddings, position_ids)))
        rotation = self.positions.rotation(hidden_states, position_ids)
        position_bias = self.positions.attention_bias(hidden_states, position_ids, padding_mask, past_key_values)
        if position_bias is not None and self.config._attn_implementation == "flex_attention":
            position_bias = position_bias.expand(len(hidden_states), -1, -1, -1)  # which it indexes by row
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                encoder_hidden_states,
                position_ids=position_ids,  # by which flash attention tells several sequences in a row apart
                rotation=rotation,
                position_bias=position_bias,
                past_key_values=past_key_values,
                **kwargs,
            )
        return self.norm(hidden_states)
