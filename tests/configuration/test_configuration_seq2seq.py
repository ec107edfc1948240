"""The encoder-decoder's configuration: its defaults are the base model of Vaswani et al. (2017)."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from paperformer import PaperformerForConditionalGeneration, PaperformerSeq2SeqConfig


def test_the_defaults_are_the_papers_base_model():
    """Table 3, line "base", and sections 3.1, 3.3, 3.4, 3.5 and 5.4."""
    config = PaperformerSeq2SeqConfig()
    assert (config.encoder_layers, config.decoder_layers) == (6, 6)
    assert (config.d_model, config.d_ff, config.n_heads, config.head_dim) == (512, 2048, 8, 64)
    assert (config.dropout, config.label_smoothing) == (0.1, 0.1)
    assert (config.attention_dropout, config.activation_dropout) == (0, 0)
    assert (config.norm_position, config.norm_type) == ("post", "layernorm")
    assert (config.hidden_act, config.gated_mlp) == ("relu", False)
    assert config.position_embedding_type == "sinusoidal"
    assert config.share_embeddings
    assert config.tie_word_embeddings
    assert config.scale_embedding
    assert config.vocab_size == 37_000  # "about 37000 tokens", section 5.1
    assert config.is_encoder_decoder


@pytest.mark.parametrize(
    ("sizes", "millions"), [({}, 65), ({"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3}, 213)]
)
def test_the_papers_models_have_the_papers_number_of_parameters(sizes, millions):
    with torch.device("meta"):
        model = PaperformerForConditionalGeneration(PaperformerSeq2SeqConfig(**sizes))
    assert model.num_parameters() / 1e6 == pytest.approx(millions, rel=0.03)


@pytest.mark.parametrize("name", ["encoder_layers", "decoder_layers"])
def test_a_stack_has_at_least_one_layer(name):
    with pytest.raises(StrictDataclassError, match=f"{name} is 0; it must be at least 1"):
        PaperformerSeq2SeqConfig(**{name: 0})


@pytest.mark.parametrize("name", ["pad_token_id", "decoder_start_token_id"])
def test_the_tokens_of_teacher_forcing_cannot_be_missing(name):
    with pytest.raises(StrictDataclassError, match=rf"{name}(?s:.*)expected int, got NoneType"):
        PaperformerSeq2SeqConfig(**{name: None})


def test_the_tensor_parallel_plan_names_real_modules():
    with torch.device("meta"):
        model = PaperformerForConditionalGeneration(PaperformerSeq2SeqConfig(n_layers=1, decoder_layers=1))
    modules = {name.replace(".0.", ".*.") for name, _ in model.model.named_modules()}
    projections = {name for name in modules if name.endswith("_proj")}
    assert projections == PaperformerSeq2SeqConfig().base_model_tp_plan.keys()


def test_n_layers_is_the_depth_of_both_stacks() -> None:
    """N of the paper, section 3.1; each stack's own field still sets it apart."""
    config = PaperformerSeq2SeqConfig(n_layers=3)
    assert (config.encoder_layers, config.decoder_layers) == (3, 3)
    assert PaperformerSeq2SeqConfig(encoder_layers=3).decoder_layers == 6


def test_without_a_source_vocabulary_there_is_one_for_both():
    config = PaperformerSeq2SeqConfig(vocab_size=50)
    assert (config.source_vocab_size, config.encoder_vocab_size) == (None, 50)
    config.vocab_size = 60
    assert config.encoder_vocab_size == 60
    assert PaperformerSeq2SeqConfig(vocab_size=50, source_vocab_size=50).source_vocab_size is None  # one embedding


@pytest.mark.parametrize("source_vocab_size", [70, 50])  # two vocabularies may be of one size
def test_a_source_vocabulary_is_kept(tmp_path, source_vocab_size):
    config = PaperformerSeq2SeqConfig(vocab_size=50, source_vocab_size=source_vocab_size, share_embeddings=False)
    config.save_pretrained(tmp_path)
    loaded = PaperformerSeq2SeqConfig.from_pretrained(tmp_path)
    assert loaded.source_vocab_size == loaded.encoder_vocab_size == source_vocab_size
    assert loaded.vocab_size == 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"source_vocab_size": 70, "vocab_size": 50},
            "source_vocab_size is 70 and vocab_size is 50, but share_embeddings is True; one embedding is of one "
            "vocabulary: set it to False, or leave source_vocab_size out",
        ),
        ({"source_vocab_size": 0, "share_embeddings": False}, "source_vocab_size is 0; it must be at least 1"),
        (
            {"source_vocab_size": 7, "share_embeddings": False, "pad_token_id": 7},
            "pad_token_id is 7; it pads sources and targets, so it must be less than 7, the smaller of",
        ),
        (
            {"source_vocab_size": 70, "vocab_size": 50, "share_embeddings": False, "pad_token_id": 60},
            "pad_token_id is 60; it pads sources and targets, so it must be less than 50, the smaller of",
        ),
        ({"source_vocab_size": 7, "share_embeddings": False, "pad_token_id": -1}, "pad_token_id is -1; it pads"),
    ],
)
def test_a_source_vocabulary_that_cannot_be(options, message):
    with pytest.raises(StrictDataclassError, match=message):
        PaperformerSeq2SeqConfig(**options)
