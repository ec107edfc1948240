"""Tiny models of every architecture that paperformer converts to and from, with random weights."""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from paperformer.conversion.architecture import Side

LM = {"hidden_size": 24, "intermediate_size": 28, "num_hidden_layers": 1, "num_attention_heads": 3}
SHARED = {"vocab_size": 37, "max_position_embeddings": 40}

OURS: dict[str, dict[str, Any]] = {
    "gpt2": LM
    | SHARED
    | {
        "norm_type": "layernorm",
        "position_embedding_type": "learned",
        "use_bias": True,
        "gated_mlp": False,
        "hidden_act": "gelu_new",
    },
    "llama": LM | SHARED,
    "bert": LM | SHARED,
    "marian": SHARED
    | {
        "hidden_size": 24,
        "intermediate_size": 28,
        "num_attention_heads": 3,
        "encoder_layers": 1,
        "decoder_layers": 1,
    },
}
"""Fields of our configurations that each architecture can express."""

THEIRS: dict[str, dict[str, Any]] = {
    "gpt2": {"vocab_size": 37, "n_positions": 40, "n_embd": 24, "n_inner": 28, "n_layer": 1, "n_head": 3},
    "llama": LM | SHARED | {"pad_token_id": 0},
    "bert": LM | SHARED,
    "marian": SHARED
    | {
        "d_model": 24,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 28,
        "decoder_ffn_dim": 28,
        "pad_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    },
}


def random_model(side: Side, config: PreTrainedConfig) -> PreTrainedModel:
    """A model with biases and norms that are not at their usual 0 and 1."""
    torch.manual_seed(1)
    model = side.model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = nn.init.normal_(torch.empty_like(parameter), std=0.2)
                parameter.add_(noise)
    return model
