"""Mistral 7B (Jiang et al. 2023, arXiv 2310.06825): a window of attention over grouped heads."""

from collections.abc import Callable

from transformers import MistralConfig, MistralForCausalLM

from paperformer import PaperformerForCausalLM, PaperformerLMConfig

from .batches import PAD, causal_batch
from .comparison import Translation, Weights, compare_generation, randomize, rename

VOCAB_SIZE, WINDOW = 41, 5
SHARED = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 20,  # not heads * head_dim
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
    "tie_word_embeddings": False,
    "pad_token_id": PAD,
    "eos_token_id": None,
}
NAMES = {"input_layernorm": "self_attn_residual.norm", "post_attention_layernorm": "mlp_residual.norm"}


def translate(weights: Weights) -> Weights:
    return rename(weights, NAMES)


def build(attention: str) -> tuple[PaperformerForCausalLM, MistralForCausalLM, Translation]:
    theirs = MistralForCausalLM(MistralConfig(**SHARED, rms_norm_eps=0.01, sliding_window=WINDOW))
    ours = PaperformerForCausalLM(
        PaperformerLMConfig(**SHARED, norm_eps=0.01, attention_window=WINDOW, attn_implementation=attention)
    )
    randomize(theirs)
    return ours.double(), theirs.double(), translate


def test_mistral(attention: str, side: str, prove: Callable):
    batch = causal_batch(VOCAB_SIZE, side, lengths=(4 * WINDOW - 1, WINDOW + 1, WINDOW - 2))
    shows = f"window of {WINDOW} tokens in rows of up to {4 * WINDOW - 1}, grouped heads, RoPE, SwiGLU"
    prove(*build(attention), batch, batch["attention_mask"].bool(), reference="MistralForCausalLM", shows=shows)


def test_mistral_generates_the_same_tokens(attention: str):
    batch = causal_batch(VOCAB_SIZE, "left", lengths=(WINDOW + 4, WINDOW - 2))
    del batch["labels"]
    compare_generation(*build(attention), batch)
