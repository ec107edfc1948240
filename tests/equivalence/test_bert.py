"""BERT (Devlin et al. 2019): a norm after the embeddings, segments, and a head with a layer of its own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from paperformer.conversion.bert import BERT

from .batches import PAD, Batch, padding_mask, random_tokens
from .comparison import randomize
from .conversions import check_there_and_back, ours_for

VOCAB_SIZE, SEGMENTS = 37, 3
VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "ReLU": {"hidden_act": "relu"},
}


def build(variant: str) -> BertForMaskedLM:
    config: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 30,
        "intermediate_size": 34,
        "num_hidden_layers": 2,
        "num_attention_heads": 5,
        "max_position_embeddings": 29,
        "type_vocab_size": SEGMENTS,
        "layer_norm_eps": 0.01,
        "pad_token_id": PAD,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    theirs = BertForMaskedLM(BertConfig(**config | VARIANTS[variant])).eval()
    randomize(theirs)
    return theirs.double()


def masked_batch(side: str) -> Batch:
    """Every third token is to be predicted."""
    mask = padding_mask(side, (11, 7, 3))
    is_predicted = mask.bool() & (mask.cumsum(-1) % 3 == 0)
    return {
        "input_ids": random_tokens(VOCAB_SIZE, mask),
        "attention_mask": mask,
        "token_type_ids": torch.randint(SEGMENTS, mask.shape),
        "labels": random_tokens(VOCAB_SIZE, mask).masked_fill(~is_predicted, -100),
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_bert(variant: str, attention: str, side: str, prove: Callable):
    theirs = build(variant)
    if variant == "untied":
        del theirs.cls.predictions.bias  # then the bias of `cls.predictions.decoder` alone is used
    ours, translate = ours_for(BERT, theirs, attention)
    batch = masked_batch(side)
    mask = batch["attention_mask"]
    prove(
        ours,
        theirs,
        translate,
        batch,
        mask.bool(),
        their_inputs=batch | {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)},
        reference="BertForMaskedLM",
        shows=f"`paperformer convert`, {variant}",
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_bert_there_and_back(variant: str):
    theirs = build(variant)
    if variant == "untied":
        torch.nn.init.zeros_(theirs.cls.predictions.bias)  # unused, and therefore left behind
    check_there_and_back(BERT, theirs)
