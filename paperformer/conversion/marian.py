"""Marian (Junczys-Dowmunt et al. 2018, arXiv 1804.00344): the Transformer of Vaswani et al. (2017), post-norm.

Its sinusoidal positions are those of the paper in another order: all sines first, then all cosines, where ours
alternate. The order of the residual stream's coordinates is a matter of naming, so every weight that reads from the
residual stream or writes to it is permuted. That is exact.
"""

from collections.abc import Iterator, Mapping

import torch
from transformers import MarianConfig, MarianMTModel

from ..configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ..modeling.modeling_seq2seq import PaperformerForConditionalGeneration
from .architecture import COMMON_FIELDS, PLAIN_BLOCK, Architecture, Fixed, Side, Weight, alike

_TYING = "with it off, transformers ties no embeddings at all, those of encoder and decoder included"


def sines_first(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """Sorts alternating coordinates along an axis, (s0, c0, s1, c1, ...) -> (s0, s1, ..., c0, c1, ...)."""
    return tensor.unflatten(axis, (-1, 2)).transpose(axis, axis + 1).flatten(axis, axis + 1).contiguous()


def alternating(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """The inverse of `sines_first`."""
    return tensor.unflatten(axis, (2, -1)).transpose(axis, axis + 1).flatten(axis, axis + 1).contiguous()


def permuted(ours: str, theirs: str, axis: int) -> Weight:
    """A tensor of which one axis is the residual stream's."""
    return Weight((ours,), theirs, lambda ours: sines_first(ours[0], axis), lambda theirs: [alternating(theirs, axis)])


def reads_residual(ours: str, theirs: str) -> Iterator[Weight]:
    """A linear layer from the residual stream: weight (out, E) and bias (out,)."""
    yield permuted(f"{ours}.weight", f"{theirs}.weight", 1)
    yield Weight((f"{ours}.bias",), f"{theirs}.bias")


def writes_residual(ours: str, theirs: str) -> Iterator[Weight]:
    """A linear layer to the residual stream, weight (E, in) and bias (E,), or a norm on it, (E,) both."""
    yield permuted(f"{ours}.weight", f"{theirs}.weight", 0)
    yield permuted(f"{ours}.bias", f"{theirs}.bias", 0)


def marian_weights(config: PaperformerSeq2SeqConfig) -> Iterator[Weight]:
    """Every tensor of a Marian model, but for the positions, which are computed."""
    if config.share_embeddings:
        yield permuted("model.encoder.embed_tokens.weight", "model.shared.weight", 1)
    else:
        yield permuted("model.encoder.embed_tokens.weight", "model.encoder.embed_tokens.weight", 1)
        yield permuted("model.decoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", 1)
    for stack, depth in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        attentions = {"self_attn": "self_attn"} | ({"cross_attn": "encoder_attn"} if stack == "decoder" else {})
        for i in range(depth):
            block = f"model.{stack}.layers.{i}"
            for ours, theirs in attentions.items():
                for name in "qkv":
                    yield from reads_residual(f"{block}.{ours}.{name}_proj", f"{block}.{theirs}.{name}_proj")
                yield from writes_residual(f"{block}.{ours}.o_proj", f"{block}.{theirs}.out_proj")
                yield from writes_residual(f"{block}.{ours}_residual.norm", f"{block}.{theirs}_layer_norm")
            yield from reads_residual(f"{block}.mlp.up_proj", f"{block}.fc1")
            yield from writes_residual(f"{block}.mlp.down_proj", f"{block}.fc2")
            yield from writes_residual(f"{block}.mlp_residual.norm", f"{block}.final_layer_norm")
    if not config.tie_word_embeddings:
        yield permuted("lm_head.weight", "lm_head.weight", 1)
    if config.output_bias:
        yield Weight(("lm_head.bias",), "final_logits_bias", lambda ours: ours[0][None], lambda theirs: [theirs[0]])


def read_output_bias(config: PaperformerSeq2SeqConfig, tensors: Mapping[str, torch.Tensor]) -> None:
    """Theirs always have the tensor, (1, V); it is zero unless the model was trained with the Marian toolkit."""
    config.output_bias = bool(tensors["final_logits_bias"].any())


def _rows_of_decoder(config: MarianConfig) -> int | None:
    return config.vocab_size if config.share_encoder_decoder_embeddings else config.decoder_vocab_size


MARIAN = Architecture(
    ours=Side.of_ours(
        PaperformerForConditionalGeneration,
        PLAIN_BLOCK
        | {
            "norm_position": Fixed("post", "it normalises after each residual addition"),
            "norm_eps": Fixed(1e-5, "its code has no field for it"),
            "position_embedding_type": Fixed("sinusoidal", "it has no other positions"),
            "embedding_norm": Fixed(False, "its embeddings are not normalised"),
            "tie_word_embeddings": Fixed(lambda config: config.share_embeddings or config.tie_word_embeddings, _TYING),
        },
        presumed={"initialization": "normal", "label_smoothing": 0.0},
        derived={"source_vocab_size": lambda config: config.vocab_size},
        told_by_weights=frozenset({"output_bias"}),
    ),
    theirs=Side(
        model=MarianMTModel,
        fixed={
            "is_decoder": Fixed(False, "it is an encoder and a decoder"),
            "decoder_vocab_size": Fixed(_rows_of_decoder, "its shared embedding has vocab_size rows"),
            "tie_word_embeddings": Fixed(
                lambda config: config.share_encoder_decoder_embeddings or config.tie_word_embeddings, _TYING
            ),
            # Of config.json files that were made from models of the Marian toolkit:
            "normalize_before": Fixed(False, "transformers' Marian is post-norm, whatever this says"),
            "normalize_embedding": Fixed(False, "transformers' Marian has no such norm, whatever this says"),
            "add_final_layer_norm": Fixed(False, "transformers' Marian has no such norm, whatever this says"),
            "static_position_embeddings": Fixed(True, "transformers' Marian is sinusoidal, whatever this says"),
        },
        # Dropped layers are for training; the forced token is in the generation settings as well.
        incidental=frozenset({"encoder_layerdrop", "decoder_layerdrop", "forced_eos_token_id"}),
        presumed={"forced_eos_token_id": None},
    ),
    fields=(
        *alike("encoder_layers", "decoder_layers", "max_position_embeddings", "dropout", "attention_dropout"),
        *alike("activation_dropout", "scale_embedding", "decoder_start_token_id", *COMMON_FIELDS),
        ("source_vocab_size", "vocab_size"),
        ("vocab_size", "decoder_vocab_size"),
        ("hidden_size", "d_model"),
        ("num_attention_heads", "encoder_attention_heads"),
        ("num_attention_heads", "decoder_attention_heads"),
        ("intermediate_size", "encoder_ffn_dim"),
        ("intermediate_size", "decoder_ffn_dim"),
        ("hidden_act", "activation_function"),
        ("initializer_range", "init_std"),
        ("share_embeddings", "share_encoder_decoder_embeddings"),
    ),
    weights=marian_weights,
    read_weights=read_output_bias,
)
