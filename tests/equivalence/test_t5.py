"""T5 (Raffel et al. 2020, arXiv 1910.10683) and its version 1.1: relative positions, encoder-decoder, no biases."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention

from paperformer import PaperformerForConditionalGeneration, PaperformerSeq2SeqConfig
from paperformer.modeling.positions import build_positions

from .batches import PAD, seq2seq_batch
from .comparison import Translation, Weights, compare_generation, randomize, rename

VOCAB_SIZE, HIDDEN_SIZE, HEAD_DIM = 41, 20, 8
NAMES = {
    "shared.": "model.encoder.embed_tokens.",
    "encoder.block.": "model.encoder.layers.",
    "decoder.block.": "model.decoder.layers.",
    "encoder.final_layer_norm": "model.encoder.norm",
    "decoder.final_layer_norm": "model.decoder.norm",
    "layers.0.layer.0.SelfAttention.relative_attention_bias": "positions.table",
    "layer.0.layer_norm": "self_attn_residual.norm",
    "layer.1.EncDecAttention": "cross_attn",
    ".q.": ".q_proj.",
    ".k.": ".k_proj.",
    ".v.": ".v_proj.",
    ".o.": ".o_proj.",
    "layer.0.SelfAttention": "self_attn",
    "DenseReluDense.wi_0": "mlp.gate_proj",
    "DenseReluDense.wi_1": "mlp.up_proj",
    "DenseReluDense.wi": "mlp.up_proj",
    "DenseReluDense.wo": "mlp.down_proj",
}
LAST_SUB_LAYER = {  # the feed-forward, which in the decoder comes after one more attention
    "encoder": {"layer.1.layer_norm": "mlp_residual.norm", "layer.1.mlp": "mlp"},
    "decoder": {
        "layer.1.layer_norm": "cross_attn_residual.norm",
        "layer.2.layer_norm": "mlp_residual.norm",
        "layer.2.mlp": "mlp",
    },
}


def translate(weights: Weights, *, tied: bool) -> Weights:
    """They do not divide scores by the root of the head's width, so our queries are longer by that. Where their output
    is tied to the embeddings, they divide what enters it by the root of the hidden size: our last norm does it.
    """
    translated = {}
    for name, tensor in rename(weights, NAMES).items():
        if "q_proj" in name:
            tensor = HEAD_DIM**0.5 * tensor
        elif name == "model.decoder.norm.weight" and tied:
            tensor = HIDDEN_SIZE**-0.5 * tensor
        translated |= rename({name: tensor}, LAST_SUB_LAYER["decoder" if "decoder" in name else "encoder"])
    return translated


def build(version: str, attention: str) -> tuple[PaperformerForConditionalGeneration, nn.Module, Translation]:
    tied = version == "1.0"
    positions = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 11}
    theirs = T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCAB_SIZE,
            d_model=HIDDEN_SIZE,
            d_kv=HEAD_DIM,
            d_ff=28,
            num_layers=3,  # no fewer than in the decoder: that breaks the cache of their generate()
            num_decoder_layers=2,
            num_heads=3,
            layer_norm_epsilon=0.01,
            dropout_rate=0.0,
            feed_forward_proj="relu" if tied else "gated-gelu",
            tie_word_embeddings=tied,
            pad_token_id=PAD,
            decoder_start_token_id=PAD,
            eos_token_id=None,
            **positions,
        )
    )
    if not tied:  # the configuration ties whatever it is told; checkpoints of version 1.1 bring a matrix of their own
        theirs.lm_head.weight = nn.Parameter(torch.empty(VOCAB_SIZE, HIDDEN_SIZE))
    ours = PaperformerForConditionalGeneration(
        PaperformerSeq2SeqConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=HIDDEN_SIZE,
            head_dim=HEAD_DIM,
            intermediate_size=28,
            encoder_layers=3,
            decoder_layers=2,
            num_attention_heads=3,
            position_embedding_type="relative",
            norm_type="rmsnorm",
            norm_position="pre",
            norm_eps=0.01,
            use_bias=False,
            hidden_act="relu" if tied else "gelu_new",
            gated_mlp=not tied,
            scale_embedding=False,
            tie_word_embeddings=tied,
            dropout=0.0,
            label_smoothing=0.0,
            pad_token_id=PAD,
            decoder_start_token_id=PAD,
            eos_token_id=None,
            attn_implementation=attention,
            **positions,
        )
    )
    randomize(theirs)
    for name, parameter in theirs.named_parameters():
        if name.endswith(".q.weight"):  # as their initialisation does, or every softmax would pick a single key
            parameter.data *= HEAD_DIM**-0.5
    return ours.double(), theirs.double(), lambda weights: translate(weights, tied=tied)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_t5(version: str, attention: str, side: str, prove: Callable):
    shows = {
        "1.0": "relative positions in encoder and decoder, cross-attention, three-way tied embeddings",
        "1.1": "relative positions, cross-attention, GEGLU, an output matrix of its own",
    }
    batch = seq2seq_batch(VOCAB_SIZE, side, side, source_lengths=(17, 9, 4), target_lengths=(14, 2, 7))
    real = batch["decoder_attention_mask"].bool()
    reference = f"T5ForConditionalGeneration, version {version}"
    prove(*build(version, attention), batch, real, reference=reference, shows=shows[version])


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_t5_generates_the_same_tokens(version: str, attention: str):
    batch = seq2seq_batch(VOCAB_SIZE, "right")
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    compare_generation(*build(version, attention), source)


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 11), (12, 50), (64, 1000)])
def test_every_distance_has_the_bucket_of_t5(is_causal: bool, num_buckets: int, max_distance: int):
    config = PaperformerSeq2SeqConfig(
        num_attention_heads=1,
        head_dim=4,
        position_embedding_type="relative",
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
    )
    positions = build_positions(config, is_causal=is_causal)
    positions.table.weight.data = torch.arange(num_buckets).float()[:, None]  # so that a bias is a bucket's number
    place = torch.arange(1200)[None]
    buckets = positions.attention_bias(torch.empty(1, 1, 1), place, None, None)[0, 0]  # (T, S)
    distances = place - place.T
    expected = T5Attention._relative_position_bucket(distances, not is_causal, num_buckets, max_distance)
    assert torch.equal(buckets, expected.float())
