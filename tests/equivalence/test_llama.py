"""Llama (Touvron et al. 2023): RMSNorm, SwiGLU, grouped queries, and RoPE with every scaling that it knows."""

from collections.abc import Callable
from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from paperformer.conversion.llama import LLAMA

from .batches import PAD, causal_batch
from .comparison import randomize
from .conversions import check_generation, check_there_and_back, ours_for

VOCAB_SIZE = 37
LENGTHS = (23, 14, 3)  # longer than the `original_max_position_embeddings` below
SCALING: dict[str, dict[str, Any]] = {
    "linear": {"factor": 2.5},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 2.0, "original_max_position_embeddings": 8},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
}
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped queries": {},
    "one key-value head, tied": {"num_key_value_heads": 1, "tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4},
    "wide heads, GELU by tanh": {"head_dim": 10, "hidden_act": "gelu_new"},
} | {
    f"RoPE scaling {rope_type}": {"rope_parameters": {"rope_type": rope_type, "rope_theta": 500.0} | parameters}
    for rope_type, parameters in SCALING.items()
}


def build(variant: str) -> LlamaForCausalLM:
    config: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 24,
        "intermediate_size": 34,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 16,
        "rms_norm_eps": 0.01,
        "pad_token_id": PAD,
    }
    theirs = LlamaForCausalLM(LlamaConfig(**config | VARIANTS[variant])).eval()
    randomize(theirs)
    return theirs.double()


@pytest.mark.parametrize("variant", VARIANTS)
def test_llama(variant: str, attention: str, side: str, prove: Callable):
    theirs = build(variant)
    ours, translate = ours_for(LLAMA, theirs, attention)
    batch = causal_batch(VOCAB_SIZE, side, LENGTHS)
    mask = batch["attention_mask"]
    prove(
        ours,
        theirs,
        translate,
        batch,
        mask.bool(),
        their_inputs=batch | {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)},
        reference="LlamaForCausalLM",
        shows=f"`paperformer convert`, {variant}",
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_llama_there_and_back(variant: str):
    check_there_and_back(LLAMA, build(variant))


@pytest.mark.parametrize("variant", ["grouped queries", "RoPE scaling dynamic", "RoPE scaling llama3"])
def test_llama_generates_the_same_tokens(variant: str):
    check_generation(LLAMA, build(variant), causal_batch(VOCAB_SIZE, "left"))
