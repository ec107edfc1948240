"""Marian (Junczys-Dowmunt et al. 2018): the Transformer of Vaswani et al. (2017), its sinusoids in another order."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from paperformer.conversion.marian import MARIAN

from .batches import PAD, Batch, seq2seq_batch
from .comparison import randomize
from .conversions import check_generation, check_there_and_back, ours_for

VOCAB_SIZE = 37
VARIANTS: dict[str, dict[str, Any]] = {
    "one embedding for source, target and output": {},
    "target embedding tied to the output": {"share_encoder_decoder_embeddings": False},
    "three embeddings": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "a vocabulary for each language": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 29},
    "a vocabulary for each language, three embeddings": {
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "decoder_vocab_size": 41,
    },
    "unscaled embeddings, SiLU": {"scale_embedding": False, "activation_function": "silu"},
}
WITH_BIAS = "a bias on the output, as published models have"


def build(variant: str) -> MarianMTModel:
    config: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "d_model": 30,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 5,
        "decoder_attention_heads": 5,
        "encoder_ffn_dim": 34,
        "decoder_ffn_dim": 34,
        "max_position_embeddings": 29,
        "activation_function": "relu",
        "scale_embedding": True,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": None,
        "dropout": 0.0,
    }
    theirs = MarianMTModel(MarianConfig(**config | VARIANTS.get(variant, {}))).eval()
    for stack in (theirs.model.encoder, theirs.model.decoder):
        # The sinusoids are a parameter that is never trained: a constant, not to be filled with random values.
        sinusoids = stack.embed_positions.weight.data
        del stack.embed_positions.weight
        stack.embed_positions.register_buffer("weight", sinusoids)
    if variant == WITH_BIAS:  # a buffer; as a parameter it has a gradient to compare
        del theirs.final_logits_bias
        theirs.final_logits_bias = torch.nn.Parameter(torch.empty(1, VOCAB_SIZE))
    randomize(theirs)
    return theirs.double()


def batch_for(config: MarianConfig) -> Batch:
    # Its positions count padding, so that only padding on the right leaves them as they are.
    targets, sources = (seq2seq_batch(size, "right") for size in (config.decoder_vocab_size, config.vocab_size))
    return targets | {"input_ids": sources["input_ids"]}


@pytest.mark.parametrize("variant", [*VARIANTS, WITH_BIAS])
def test_marian(variant: str, attention: str, prove: Callable):
    theirs = build(variant)
    ours, translate = ours_for(MARIAN, theirs, attention)
    batch = batch_for(theirs.config)
    prove(
        ours,
        theirs,
        translate,
        batch,
        batch["decoder_attention_mask"].bool(),
        reference="MarianMTModel",
        shows=f"`paperformer convert`, {variant}",
    )


@pytest.mark.parametrize("variant", [*VARIANTS, WITH_BIAS])
def test_marian_there_and_back(variant: str):
    check_there_and_back(MARIAN, build(variant))


@pytest.mark.parametrize("variant", [*VARIANTS, WITH_BIAS])
def test_marian_generates_the_same_tokens(variant: str):
    theirs = build(variant)
    check_generation(MARIAN, theirs, batch_for(theirs.config))


def test_the_sizes_of_two_vocabularies_go_where_they_belong():
    ours, _ = MARIAN.config_to_ours(build("a vocabulary for each language").config)
    assert (ours.source_vocab_size, ours.vocab_size) == (VOCAB_SIZE, 29)
