"""Gemma 2 (Gemma Team 2024, arXiv 2408.00118) without soft-capping: norms before and after each sub-layer."""

from collections.abc import Callable

from transformers import Gemma2Config, Gemma2ForCausalLM

from paperformer import PaperformerForCausalLM, PaperformerLMConfig

from .batches import PAD, causal_batch
from .comparison import Translation, Weights, compare_generation, randomize, rename

VOCAB_SIZE, LAYERS, HEAD_DIM, QUERY_SCALAR = 41, 2, 6, 11
SHARED = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 20,  # not heads * head_dim, and its root is no whole number
    "intermediate_size": 28,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 32,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
    "tie_word_embeddings": True,
    "pad_token_id": PAD,
    "eos_token_id": None,
}
NAMES = {
    "input_layernorm": "self_attn_residual.norm",
    "post_attention_layernorm": "self_attn_residual.output_norm",
    "pre_feedforward_layernorm": "mlp_residual.norm",
    "post_feedforward_layernorm": "mlp_residual.output_norm",
}


def translate(weights: Weights) -> Weights:
    """Their norms scale by 1 + weight, ours by the weight; their scores are divided by the root of
    `query_pre_attn_scalar`, ours by that of the head's width. Embeddings are scaled by sqrt(E) on both sides, which in
    float32 is rounded alike.
    """
    translated = rename(weights, NAMES)
    for name, tensor in translated.items():
        if "norm" in name:
            translated[name] = 1 + tensor
        elif "q_proj" in name:
            translated[name] = (HEAD_DIM / QUERY_SCALAR) ** 0.5 * tensor
    return translated


def build(attention: str) -> tuple[PaperformerForCausalLM, Gemma2ForCausalLM, Translation]:
    theirs = Gemma2ForCausalLM(
        Gemma2Config(
            **SHARED,
            rms_norm_eps=0.01,
            query_pre_attn_scalar=QUERY_SCALAR,
            layer_types=["full_attention"] * LAYERS,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
            attn_implementation="eager",
        )
    )
    ours = PaperformerForCausalLM(
        PaperformerLMConfig(
            **SHARED,
            norm_eps=0.01,
            norm_position="peri",
            hidden_act="gelu_new",
            scale_embedding=True,
            attn_implementation=attention,
        )
    )
    randomize(theirs)
    return ours, theirs, translate


def test_gemma2(attention: str, side: str, prove: Callable):
    batch = causal_batch(VOCAB_SIZE, side)
    shows = "norms before and after each sub-layer, grouped heads, RoPE, GEGLU, scaled and tied embeddings"
    prove(*build(attention), batch, batch["attention_mask"].bool(), reference="Gemma2ForCausalLM", shows=shows)


def test_gemma2_generates_the_same_tokens(attention: str):
    batch = causal_batch(VOCAB_SIZE, "left")
    del batch["labels"]
    compare_generation(*build(attention), batch)
