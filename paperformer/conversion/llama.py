"""Llama (Touvron et al. 2023, arXiv 2302.13971): pre-norm, RMSNorm, RoPE, gated feed-forward, grouped queries."""

from collections.abc import Iterator

from transformers import LlamaForCausalLM

from ..configuration.configuration_lm import PaperformerLMConfig
from ..modeling.modeling_lm import PaperformerForCausalLM
from .architecture import COMMON_FIELDS, PLAIN_ATTENTION, Architecture, Fixed, Side, Weight, alike, same


def llama_weights(config: PaperformerLMConfig) -> Iterator[Weight]:
    """Every tensor of a Llama model."""
    parameters = ("weight", "bias") if config.use_bias else ("weight",)
    yield from same("model.embed_tokens", "model.embed_tokens", "weight")
    for i in range(config.num_hidden_layers):
        block = f"model.layers.{i}"
        for name in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down"):
            yield from same(f"{block}.{name}_proj", f"{block}.{name}_proj", *parameters)
        yield from same(f"{block}.self_attn_residual.norm", f"{block}.input_layernorm", "weight")
        yield from same(f"{block}.mlp_residual.norm", f"{block}.post_attention_layernorm", "weight")
    yield from same("model.norm", "model.norm", "weight")
    if not config.tie_word_embeddings:
        yield from same("lm_head", "lm_head", "weight")


LLAMA = Architecture(
    ours=Side.of_ours(
        PaperformerForCausalLM,
        PLAIN_ATTENTION
        | {
            "norm_position": Fixed("pre", "it normalises before each sub-layer"),
            "norm_type": Fixed("rmsnorm", "it has no other norm"),
            "position_embedding_type": Fixed("rope", "it has no other positions"),
            "gated_mlp": Fixed(True, "its feed-forward layer is gated"),
            "embedding_norm": Fixed(False, "its embeddings are not normalised"),
            "scale_embedding": Fixed(False, "its embeddings are not scaled"),
        },
        presumed={"initialization": "normal"},
    ),
    theirs=Side(
        model=LlamaForCausalLM,
        fixed={},
        incidental=frozenset({"pretraining_tp"}),  # how the products were once divided, not what they are
    ),
    fields=(
        *alike("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *alike("num_key_value_heads", "head_dim", "hidden_act", "rope_parameters", "max_position_embeddings"),
        *alike("attention_dropout", "initializer_range", *COMMON_FIELDS),
        ("use_bias", "attention_bias"),
        ("use_bias", "mlp_bias"),
        ("norm_eps", "rms_norm_eps"),
    ),
    weights=llama_weights,
)
