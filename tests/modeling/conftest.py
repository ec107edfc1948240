"""Tiny models whose outputs depend on everything: on every weight, every token, and every position."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from paperformer import (
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)

POSITIONS = ["sinusoidal", "learned", "rope", "none"]
NORM_POSITIONS = ["post", "pre", "peri"]

# Grouped heads, and weights large enough for attention to be far from uniform.
TINY: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "initialization": "normal",
    "initializer_range": 0.3,
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def make_seq2seq() -> Callable[..., PaperformerForConditionalGeneration]:
    def make(**options: Any) -> PaperformerForConditionalGeneration:
        torch.manual_seed(0)
        config = PaperformerSeq2SeqConfig(**{**TINY, "encoder_layers": 2, "decoder_layers": 2, **options})
        return PaperformerForConditionalGeneration(config).eval()

    return make


@pytest.fixture(scope="session")
def make_lm() -> Callable[..., PaperformerForCausalLM]:
    def make(**options: Any) -> PaperformerForCausalLM:
        torch.manual_seed(0)
        return PaperformerForCausalLM(PaperformerLMConfig(**{**TINY, "num_hidden_layers": 2, **options})).eval()

    return make


@pytest.fixture(scope="session", params=["seq2seq", "lm"])
def make_model(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Both families, for what holds of both."""
    return request.getfixturevalue(f"make_{request.param}")


@pytest.fixture(scope="session", params=[(p, n) for p in POSITIONS for n in NORM_POSITIONS], ids="-".join)
def kind(request: pytest.FixtureRequest) -> dict[str, str]:
    """Every way to tell order with every place of the norms."""
    return dict(zip(("position_embedding_type", "norm_position"), request.param, strict=True))
