"""Two small models of one vocabulary, whose translations depend on every word."""

from typing import Any

import pytest
import torch

from paperformer import PaperformerForConditionalGeneration, PaperformerSeq2SeqConfig, train_tokenizer
from paperformer.decoding.translator import Translator

LINES = ["A dog runs on the beach.", "Ein Hund läuft am Strand.", "Two men talk.", "Zwei Männer reden."]
SOURCES = ["A dog runs.", "", "Two men talk on the beach.", "A dog talk."]
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def make_translator(seed: int, **size: Any) -> Translator:
    torch.manual_seed(seed)
    tokenizer = train_tokenizer(LINES * 3, 300, append_eos=True)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64} | size
    strong: dict[str, Any] = {
        "initialization": "normal",
        "initializer_range": 0.3,
        "scale_embedding": False,
        "output_bias": True,
    }
    config = PaperformerSeq2SeqConfig(encoder_layers=1, vocab_size=len(tokenizer), **sizes, **strong)
    model = PaperformerForConditionalGeneration(config).eval()
    torch.nn.init.constant_(model.lm_head.bias[2:3], 3.0)  # sentences end, and searches with them
    return Translator(model, tokenizer)


@pytest.fixture(scope="session")
def one() -> Translator:
    return make_translator(1, decoder_layers=2)


@pytest.fixture(scope="session")
def other() -> Translator:
    return make_translator(2, decoder_layers=1, hidden_size=24)
