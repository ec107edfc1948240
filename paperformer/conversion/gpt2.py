"""GPT-2 (Radford et al. 2019): pre-norm, LayerNorm, learned positions, biases everywhere."""

from collections.abc import Iterator

import torch
from transformers import GPT2LMHeadModel

from ..configuration.configuration_lm import PaperformerLMConfig
from ..modeling.modeling_lm import PaperformerForCausalLM
from .architecture import COMMON_FIELDS, PLAIN_BLOCK, Architecture, Fixed, Side, Weight, alike, same


def transposed(ours: tuple[str, ...], theirs: str) -> Iterator[Weight]:
    """Linear layers, (out, in) each, as one of GPT-2's `Conv1D`, (in, all out): weights and biases."""
    yield Weight(
        tuple(f"{name}.weight" for name in ours),
        f"{theirs}.weight",
        lambda tensors: torch.cat(tensors).t().contiguous(),
        lambda tensor: [part.t().contiguous() for part in tensor.chunk(len(ours), dim=1)],
    )
    yield Weight(
        tuple(f"{name}.bias" for name in ours),
        f"{theirs}.bias",
        torch.cat,
        lambda tensor: [part.clone() for part in tensor.chunk(len(ours))],
    )


def gpt2_weights(config: PaperformerLMConfig) -> Iterator[Weight]:
    """Every tensor of a GPT-2 model."""
    yield from same("model.embed_tokens", "transformer.wte", "weight")
    yield from same("model.positions.table", "transformer.wpe", "weight")
    for i in range(config.num_hidden_layers):
        ours, theirs = f"model.layers.{i}", f"transformer.h.{i}"
        yield from same(f"{ours}.self_attn_residual.norm", f"{theirs}.ln_1")
        yield from transposed(tuple(f"{ours}.self_attn.{name}_proj" for name in "qkv"), f"{theirs}.attn.c_attn")
        yield from transposed((f"{ours}.self_attn.o_proj",), f"{theirs}.attn.c_proj")
        yield from same(f"{ours}.mlp_residual.norm", f"{theirs}.ln_2")
        yield from transposed((f"{ours}.mlp.up_proj",), f"{theirs}.mlp.c_fc")
        yield from transposed((f"{ours}.mlp.down_proj",), f"{theirs}.mlp.c_proj")
    yield from same("model.norm", "transformer.ln_f")
    if not config.tie_word_embeddings:
        yield from same("lm_head", "lm_head", "weight")


GPT2 = Architecture(
    ours=Side.of_ours(
        PaperformerForCausalLM,
        PLAIN_BLOCK
        | {
            "norm_position": Fixed("pre", "it normalises before each sub-layer"),
            "position_embedding_type": Fixed("learned", "it has no other positions"),
            "embedding_norm": Fixed(False, "its embeddings are not normalised"),
            "scale_embedding": Fixed(False, "its embeddings are not scaled"),
        },
        presumed={"initialization": "gpt2"},
    ),
    theirs=Side(
        model=GPT2LMHeadModel,
        fixed={
            "scale_attn_weights": Fixed(True, "its scores are divided by the root of head_dim"),
            "scale_attn_by_inverse_layer_idx": Fixed(False, "its scores are scaled alike in all layers"),
            "add_cross_attention": Fixed(False, "its language model has no encoder to attend to"),
        },
        incidental=frozenset(
            {
                "reorder_and_upcast_attn",  # precision, not function
                "embd_pdrop",  # training only; ours has one dropout for this and resid_pdrop
                # of GPT2DoubleHeadsModel only
                "summary_type",
                "summary_use_proj",
                "summary_activation",
                "summary_proj_to_labels",
                "summary_first_dropout",
            }
        ),
        derived={"n_inner": lambda config: 4 * config.n_embd},
    ),
    fields=(
        *alike("vocab_size", "initializer_range", *COMMON_FIELDS),
        ("max_position_embeddings", "n_positions"),
        ("hidden_size", "n_embd"),
        ("num_hidden_layers", "n_layer"),
        ("num_attention_heads", "n_head"),
        ("intermediate_size", "n_inner"),
        ("hidden_act", "activation_function"),
        ("dropout", "resid_pdrop"),
        ("dropout", "embd_pdrop"),
        ("attention_dropout", "attn_pdrop"),
        ("norm_eps", "layer_norm_epsilon"),
    ),
    weights=gpt2_weights,
)
