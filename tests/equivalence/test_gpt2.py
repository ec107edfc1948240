"""GPT-2 (Radford et al. 2019): pre-norm, learned positions, one matrix for queries, keys and values."""

from collections.abc import Callable
from typing import Any

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from paperformer.conversion.gpt2 import GPT2

from .batches import PAD, causal_batch
from .comparison import randomize
from .conversions import check_generation, check_there_and_back, ours_for

VOCAB_SIZE = 37
VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "four times as wide inside, exact GELU": {"n_inner": None, "activation_function": "gelu"},
}


def build(variant: str) -> GPT2LMHeadModel:
    config: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "n_positions": 29,
        "n_embd": 30,
        "n_inner": 34,
        "n_layer": 2,
        "n_head": 5,
        "layer_norm_epsilon": 0.01,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }
    theirs = GPT2LMHeadModel(GPT2Config(**config | VARIANTS[variant])).eval()
    randomize(theirs)
    return theirs.double()


@pytest.mark.parametrize("variant", VARIANTS)
def test_gpt2(variant: str, attention: str, side: str, prove: Callable):
    theirs = build(variant)
    ours, translate = ours_for(GPT2, theirs, attention)
    batch = causal_batch(VOCAB_SIZE, side)
    mask = batch["attention_mask"]
    prove(
        ours,
        theirs,
        translate,
        batch,
        mask.bool(),
        their_inputs=batch | {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)},
        reference="GPT2LMHeadModel",
        shows=f"`paperformer convert`, {variant}",
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_gpt2_there_and_back(variant: str):
    check_there_and_back(GPT2, build(variant))


@pytest.mark.parametrize("variant", ["tied", "untied"])
def test_gpt2_generates_the_same_tokens(variant: str):
    check_generation(GPT2, build(variant), causal_batch(VOCAB_SIZE, "left"))
