from typing import Any

import torch
from hypothesis import strategies as st
from transformers import PreTrainedModel

from paperformer import PaperformerEncoderConfig, PaperformerLMConfig, PaperformerSeq2SeqConfig
from paperformer.modeling.families import Config, family_of

FAMILIES = (PaperformerSeq2SeqConfig, PaperformerLMConfig, PaperformerEncoderConfig)
PRESETS = {name: family for family in FAMILIES for name in family.presets}


def make_model(config: Config, *, with_head: bool = True, device: str = "cpu") -> PreTrainedModel:
    family = family_of(config.model_type)
    with torch.device(device):
        return (family.head if with_head else family.base)(config)


# No two of these sizes are equal, and none is the product of others, so that no term can stand in for another.
@st.composite
def configurations(draw: st.DrawFn) -> Config:
    def choose(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    linear = choose(False, False, True)
    family = choose(*FAMILIES)
    options: dict[str, Any] = {
        "vocab_size": choose(53, 101),
        "hidden_size": 30,
        "intermediate_size": 44,
        "num_attention_heads": 6,
        "num_key_value_heads": choose(1, 2, 3, 6),
        "head_dim": choose(None, 8),
        "hidden_act": choose("relu", "gelu", "gelu_new", "silu"),
        "gated_mlp": choose(False, True),
        "use_bias": choose(False, True),
        "norm_type": choose("layernorm", "rmsnorm"),
        "norm_position": choose("post", "pre", "peri"),
        "embedding_norm": choose(False, True),
        "qk_norm": choose(False, True),
        "linear_attention": linear,
        "attention_dropout": 0.0,
        "position_embedding_type": choose("sinusoidal", "learned", "none", *(() if linear else ("alibi", "relative"))),
        "relative_attention_num_buckets": 12,
        "max_position_embeddings": 97,
        "tie_word_embeddings": choose(False, True),
    }
    if not linear and choose(False, True):
        options |= {"head_dim": 8, "position_embedding_type": "rope"}
    if family is PaperformerSeq2SeqConfig:
        options |= {
            "encoder_layers": choose(1, 2),
            "decoder_layers": choose(1, 3),
            "share_embeddings": choose(0, 1) == 1,
            "output_bias": choose(0, 1) == 1,
        }
        if not options["share_embeddings"]:
            options |= {"source_vocab_size": choose(None, 71)}
    else:
        options |= {"num_hidden_layers": choose(1, 2)}
    if family is PaperformerEncoderConfig:
        options |= {"type_vocab_size": choose(0, 2), "pooling": choose("first", "mean")}
    return family(**options)


TINY: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "attention_dropout": 0.0,
    "dropout": 0.1,
}


def tiny(family: type[Config], num_layers: int = 2, **options: Any) -> Config:
    is_pair = family is PaperformerSeq2SeqConfig
    depth = {"encoder_layers": 2, "decoder_layers": num_layers} if is_pair else {"num_hidden_layers": num_layers}
    return family(**TINY | depth | options)


def training_inputs(config: Config, batch: int, length: int, source_length: int) -> dict[str, torch.Tensor]:
    labels = torch.randint(3, config.vocab_size, (batch, length))
    if config.is_encoder_decoder:
        return {"input_ids": torch.randint(3, config.vocab_size, (batch, source_length)), "labels": labels}
    ids = labels.clone()
    if config.model_type == "paperformer-encoder":
        hidden = torch.randperm(labels.numel())[round(0.15 * labels.numel()) :]
        labels.view(-1)[hidden] = -100
    return {"input_ids": ids, "labels": labels}
