"""Tiny models of every family, with weights large enough for attention to be far from uniform."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from paperformer import PaperformerForCausalLM, PaperformerForConditionalGeneration, train_tokenizer
from paperformer.configuration.configuration_encoder import PaperformerEncoderConfig
from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from paperformer.modeling.modeling_encoder import PaperformerForMaskedLM

TEXTS = ["A dog runs on the beach.", "Ein Hund läuft am Strand.", "Two men talk.", "Zwei Männer reden."]
FAMILIES: dict[str, tuple[type, type, dict[str, int]]] = {
    "seq2seq": (
        PaperformerSeq2SeqConfig,
        PaperformerForConditionalGeneration,
        {"encoder_layers": 3, "decoder_layers": 2},
    ),
    "lm": (PaperformerLMConfig, PaperformerForCausalLM, {"num_hidden_layers": 2}),
    "encoder": (PaperformerEncoderConfig, PaperformerForMaskedLM, {"num_hidden_layers": 2}),
}
SIZE = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initialization": "normal",
    "initializer_range": 0.3,
}

MakeModel = Callable[..., PreTrainedModel]


@pytest.fixture(scope="session")
def make_model() -> MakeModel:
    def make(family: str, **options: Any) -> PreTrainedModel:
        torch.manual_seed(0)
        config_class, model_class, layers = FAMILIES[family]
        model = model_class(config_class(**SIZE | layers | {"vocab_size": 300} | options)).eval()
        model.set_attn_implementation("eager")
        return model

    return make


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, PreTrainedTokenizerBase]:
    return {family: train_tokenizer(TEXTS * 3, 300, append_eos=family != "lm") for family in FAMILIES}
