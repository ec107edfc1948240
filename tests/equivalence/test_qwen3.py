"""Qwen3 (Yang et al. 2025, arXiv 2505.09388): queries and keys normalised head by head."""

from collections.abc import Callable

from transformers import Qwen3Config, Qwen3ForCausalLM

from paperformer import PaperformerForCausalLM, PaperformerLMConfig

from .batches import PAD, causal_batch
from .comparison import Translation, Weights, compare_generation, randomize, rename

VOCAB_SIZE = 41
SHARED = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 20,  # not heads * head_dim
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
    "tie_word_embeddings": True,
    "pad_token_id": PAD,
    "eos_token_id": None,
}
NAMES = {"input_layernorm": "self_attn_residual.norm", "post_attention_layernorm": "mlp_residual.norm"}


def translate(weights: Weights) -> Weights:
    return rename(weights, NAMES)


def build(attention: str) -> tuple[PaperformerForCausalLM, Qwen3ForCausalLM, Translation]:
    theirs = Qwen3ForCausalLM(Qwen3Config(**SHARED, rms_norm_eps=0.01))
    ours = PaperformerForCausalLM(
        PaperformerLMConfig(**SHARED, norm_eps=0.01, qk_norm=True, attn_implementation=attention)
    )
    randomize(theirs)
    return ours.double(), theirs.double(), translate


def test_qwen3(attention: str, side: str, prove: Callable):
    batch = causal_batch(VOCAB_SIZE, side)
    shows = "norm of queries and keys, grouped heads, RoPE, SwiGLU, tied embeddings"
    prove(*build(attention), batch, batch["attention_mask"].bool(), reference="Qwen3ForCausalLM", shows=shows)


def test_qwen3_generates_the_same_tokens(attention: str):
    batch = causal_batch(VOCAB_SIZE, "left")
    del batch["labels"]
    compare_generation(*build(attention), batch)
