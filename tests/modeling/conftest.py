"""Tiny models whose outputs depend on everything: on every weight, every token, and every position."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from paperformer import (
    PaperformerEncoderConfig,
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerForMaskedLM,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)

POSITIONS = ["sinusoidal", "learned", "rope", "alibi", "relative", "none"]
NORM_POSITIONS = ["post", "pre", "peri"]
OPTIONS: dict[str, dict[str, Any]] = {
    "local": {"position_embedding_type": "rope", "attention_window": 3},
    "strided": {"position_embedding_type": "relative", "attention_window": 2, "attention_stride": 3},
    "linear": {"position_embedding_type": "sinusoidal", "linear_attention": True},
    "normed": {"position_embedding_type": "rope", "qk_norm": True, "embedding_norm": True, "norm_type": "rmsnorm"},
}

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


@pytest.fixture(scope="session")
def make_encoder() -> Callable[..., PaperformerForMaskedLM]:
    def make(**options: Any) -> PaperformerForMaskedLM:
        torch.manual_seed(0)
        config = PaperformerEncoderConfig(**{**TINY, "attention_dropout": 0.0, "num_hidden_layers": 2, **options})
        return PaperformerForMaskedLM(config).eval()

    return make


@pytest.fixture(scope="session", params=["seq2seq", "lm"])
def make_model(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The families that generate, for what holds of both."""
    return request.getfixturevalue(f"make_{request.param}")


@pytest.fixture(scope="session", params=["seq2seq", "lm", "encoder"])
def make_any_model(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """All families, for what holds of each."""
    return request.getfixturevalue(f"make_{request.param}")


KINDS = {f"{p}-{n}": {"position_embedding_type": p, "norm_position": n} for p in POSITIONS for n in NORM_POSITIONS}
KINDS |= OPTIONS
PROOFS = set(KINDS) - set(OPTIONS) - {f"{p}-{NORM_POSITIONS[i % 3]}" for i, p in enumerate(POSITIONS)}


@pytest.fixture(
    scope="session", params=[pytest.param(name, marks=pytest.mark.proof) if name in PROOFS else name for name in KINDS]
)
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Every way to tell order with every place of the norms, and what else changes who sees whom."""
    return KINDS[request.param]
