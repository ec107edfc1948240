"""A model as CTranslate2's specification: which of our weights goes where, and which of our options sets which switch.

Shapes: E hidden size, H heads, G key-value heads, D head width, F intermediate size, V vocabulary, P positions.
"""

from typing import Any

import numpy as np
import torch
from ctranslate2.specs import attention_spec, common_spec, transformer_spec
from torch import nn
from transformers import PreTrainedModel

from ...modeling.attention import MultiHeadAttention
from ...modeling.blocks import TransformerBlock
from ...modeling.positions import RotaryEmbedding, SinusoidalPositions
from ...modeling.stack import TransformerStack

Spec = Any
"""A part of a specification; its classes have no types."""

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_new": common_spec.Activation.GELUTanh,
    "silu": common_spec.Activation.SWISH,
    "sigmoid": common_spec.Activation.Sigmoid,
}


def build_spec(model: PreTrainedModel) -> Spec:
    """The specification of a model of any family, without vocabularies.

    Of an encoder it is what makes the states of the tokens: the format has no place for the prediction of masked ones.
    """
    config: Any = model.config
    body: Any = model.model
    if config.is_encoder_decoder:
        spec = transformer_spec.TransformerSpec(_encoder(body.encoder), _decoder(body.decoder, model.lm_head))
    elif config.model_type == "paperformer-lm":
        spec = transformer_spec.TransformerDecoderModelSpec(_decoder(body, model.lm_head))
    else:
        spec = transformer_spec.TransformerEncoderModelSpec(_encoder(body))
    spec.config.layer_norm_epsilon = config.norm_eps
    return spec


def _options(stack: TransformerStack) -> dict[str, Any]:
    """What the specifications of an encoder and of a decoder both ask."""
    config: Any = stack.config
    options: dict[str, Any] = {
        "num_layers": len(stack.layers),
        "num_heads": config.num_attention_heads,
        "num_heads_kv": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "pre_norm": config.norm_position != "post",
        "pre_post_layer_norm": config.norm_position == "peri",
        "activation": ACTIVATIONS[config.hidden_act],
        "ffn_glu": config.gated_mlp,
        "rms_norm": config.norm_type == "rmsnorm",
        "layernorm_embedding": config.embedding_norm,
        "relative_attention_bias": config.position_embedding_type == "relative",
        "qk_norm": config.qk_norm,
    }
    if config.positions_enter == "rotation":
        options |= {
            "rotary_dim": 0,  # the whole head
            "rotary_interleave": False,
            "rotary_base": 1.0,
            "rotary_scaling_type": attention_spec.RotaryScalingType.Su,
        }
    return options


def _encoder(stack: TransformerStack) -> Spec:
    types = getattr(stack, "embed_token_types", None)
    spec = transformer_spec.TransformerEncoderSpec(
        num_source_embeddings=1 if types is None else 2,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD,
        **_options(stack),
    )
    spec.embeddings[0].weight = _tensor(stack.embed_tokens.weight)
    if types is not None:  # they are added before the scaling there, and after it here
        spec.embeddings[1].weight = _tensor(types.weight / stack.embed_scale)
    _fill_stack(spec, stack)
    return spec


def _decoder(stack: TransformerStack, head: nn.Linear) -> Spec:
    is_peri = stack.config.norm_position == "peri"
    with_encoder = stack.layers[0].has_cross_attention
    spec = transformer_spec.TransformerDecoderSpec(
        with_encoder_attention=with_encoder,
        external_pre_post_encoder_layers=is_peri and with_encoder,
        alibi=stack.config.position_embedding_type == "alibi",
        # A bias that grows with the key's place differs from ours by a constant for each query, which softmax drops.
        alibi_use_positive_positions=True,
        **_options(stack),
    )
    spec.embeddings.weight = _tensor(stack.embed_tokens.weight)
    _fill_linear(spec.projection, head)
    _fill_stack(spec, stack)
    return spec


def _fill_stack(spec: Spec, stack: TransformerStack) -> None:
    spec.scale_embeddings = stack.embed_scale != 1.0
    if hasattr(spec, "layer_norm"):
        _fill_norm(spec.layer_norm, stack.norm)
    if hasattr(spec, "layernorm_embedding"):
        _fill_norm(spec.layernorm_embedding, stack.embed_norm)
    if stack.config.positions_enter in ("embeddings", "nowhere"):
        spec.position_encodings.encodings = _position_table(stack)
    layers: Any = stack.layers
    for layer_spec, layer in zip(spec.layer, layers, strict=True):
        _fill_block(layer_spec, layer)
        _fill_positions(layer_spec.self_attention, stack)


def _position_table(stack: TransformerStack) -> torch.Tensor:
    """What is added to the embeddings, (P, E): written out, since the engine's own sinusoids are of another formula."""
    config: Any = stack.config
    positions: Any = stack.positions
    length = config.max_position_embeddings
    zeros = torch.zeros(1, length, config.hidden_size)
    if config.position_embedding_type in ("sinusoidal", "learned"):
        assert isinstance(positions, SinusoidalPositions) or hasattr(positions, "table")
        zeros = positions.add_to(zeros, torch.arange(length)[None])
    return _tensor(zeros[0])


def _fill_positions(spec: Spec, stack: TransformerStack) -> None:
    """What self-attention knows of positions, which is the same in all blocks of a stack."""
    positions: Any = stack.positions
    if isinstance(positions, RotaryEmbedding):
        # The longest waves of "Su" are wavelengths written out, for whichever scaling made them. The short ones would
        # be for texts within the original length, of which there are none.
        wavelengths = 1.0 / positions.inv_freq.float()  # (D/2,)
        spec.rotary_scaling_long_factor = spec.rotary_scaling_short_factor = wavelengths.numpy()
        spec.queries_scale = np.float32(positions.attention_scaling**2 * stack.config.head_dim**-0.5)
    elif stack.config.position_embedding_type == "relative":
        spec.relative_attention_bias = _tensor(positions.table.weight)
        spec.relative_attention_max_distance = np.dtype("int32").type(positions.max_distance)


def _fill_block(spec: Spec, layer: TransformerBlock) -> None:
    attentions = [("self_attention", layer.self_attn, layer.self_attn_residual)]
    if layer.has_cross_attention:
        attentions.append(("attention", layer.cross_attn, layer.cross_attn_residual))
    for name, attention, _ in attentions:
        _fill_attention(getattr(spec, name), attention)
    _fill_feed_forward(spec.ffn, layer)
    if hasattr(layer.mlp_residual, "output_norm"):
        norms = [
            ("input_layer_norm", "post_attention_layer_norm", layer.self_attn_residual),
            ("pre_feedforward_layer_norm", "post_feedforward_layer_norm", layer.mlp_residual),
        ]
        if layer.has_cross_attention:
            before, after = (f"external_{place}_encoder_attention_layer_norm" for place in ("pre", "post"))
            norms.append((before, after, layer.cross_attn_residual))
        for before, after, residual in norms:
            _fill_norm(getattr(spec, before), residual.norm)
            _fill_norm(getattr(spec, after), residual.output_norm)
        return
    for name, _, residual in attentions:
        _fill_norm(getattr(spec, name).layer_norm, residual.norm)
    _fill_norm(spec.ffn.layer_norm, layer.mlp_residual.norm)


def _fill_attention(spec: Spec, attention: MultiHeadAttention) -> None:
    """Queries, keys and values in one matrix, ((H + 2G) D, E); in cross-attention the queries in one of their own."""
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    groups = (projections[:1], projections[1:]) if len(spec.linear) == 3 else (projections,)
    for linear, parts in zip(spec.linear, (*groups, (attention.o_proj,)), strict=True):
        _fill_linear(linear, *parts)
    if hasattr(spec, "q_norm"):
        for name in ("q_norm", "k_norm"):
            norm = common_spec.LayerNormSpec(rms_norm=isinstance(attention.q_norm, nn.RMSNorm))
            setattr(spec, name, norm)
            _fill_norm(norm, getattr(attention, name))


def _fill_feed_forward(spec: Spec, layer: TransformerBlock) -> None:
    mlp = layer.mlp
    if mlp.gate_proj is None:
        _fill_linear(spec.linear_0, mlp.up_proj)
    else:
        _fill_linear(spec.linear_0, mlp.gate_proj)
        _fill_linear(spec.linear_0_noact, mlp.up_proj)
    _fill_linear(spec.linear_1, mlp.down_proj)


def _fill_linear(spec: Spec, *layers: nn.Linear) -> None:
    """One matrix from several, their outputs one after another."""
    spec.weight = _tensor(torch.cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        spec.bias = _tensor(torch.cat([layer.bias for layer in layers]))


def _fill_norm(spec: Spec, norm: Any) -> None:
    """A norm; without a shift the engine takes LayerNorm for RMSNorm, so zeros are written."""
    spec.gamma = _tensor(norm.weight)
    if hasattr(spec, "beta"):
        spec.beta = _tensor(torch.zeros_like(norm.weight) if norm.bias is None else norm.bias)


def _tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of its own: the converter's quantisation multiplies in place, and would ruin the model."""
    return tensor.detach().float().clone(memory_format=torch.contiguous_format)
