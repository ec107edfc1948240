import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer import PaperformerEncoderConfig, PaperformerLMConfig, PaperformerSeq2SeqConfig
from paperformer.modeling.families import Config
from paperformer.training.costs.parameters import count_parameters

from ...examples import examples
from .conftest import PRESETS, configurations, make_model


@settings(max_examples=examples(60))
@given(configurations(), st.booleans())
def test_every_parameter_belongs_to_a_part(config: Config, with_head: bool) -> None:
    counts = count_parameters(config, with_head=with_head)
    assert sum(counts.values()) == make_model(config, with_head=with_head, device="meta").num_parameters()


def test_parts_of_a_language_model() -> None:
    assert count_parameters(PaperformerLMConfig.from_preset("gpt2")) == {
        "embeddings": 50_257 * 768,
        "positions": 1024 * 768,
        "attention": 12 * (4 * 768**2 + 4 * 768),
        "cross-attention": 0,
        "feed-forward": 12 * (8 * 768**2 + 5 * 768),
        "norms": 25 * 2 * 768,
        "output layer": 0,
    }


def test_parts_of_a_translation_model() -> None:
    """With everything in it that has parameters: E = 30, 6 query heads and 2 key-value heads of 8, F = 44."""
    config = PaperformerSeq2SeqConfig(
        vocab_size=53,
        source_vocab_size=71,
        hidden_size=30,
        intermediate_size=44,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        encoder_layers=1,
        decoder_layers=3,
        gated_mlp=True,
        use_bias=True,
        norm_position="peri",
        embedding_norm=True,
        qk_norm=True,
        position_embedding_type="relative",
        relative_attention_num_buckets=12,
        share_embeddings=False,
        tie_word_embeddings=False,
        output_bias=True,
    )
    attention = 2 * 30 * (48 + 16) + (48 + 2 * 16 + 30)
    assert count_parameters(config) == {
        "embeddings": (53 + 71) * 30,
        "positions": 2 * 12 * 6,
        "attention": 4 * attention,
        "cross-attention": 3 * attention,
        "feed-forward": 4 * (3 * 30 * 44 + 2 * 44 + 30),
        "norms": 2 * 30 * (2 * (1 * 2 + 3 * 3) + 2 * 2) + 2 * 8 * 2 * (1 + 3 * 2),
        "output layer": 53 * 30 + 53,
    }


def test_parts_of_an_encoder() -> None:
    config = PaperformerEncoderConfig.from_preset("bert-base", pooling="first")
    counts, base = count_parameters(config), count_parameters(config, with_head=False)
    assert counts["embeddings"] == (config.vocab_size + 2) * 768
    assert counts["output layer"] == 768**2 + 768 + 2 * 768 + config.vocab_size  # a norm among them
    assert counts["norms"] == base["norms"]
    assert base["output layer"] == 768**2 + 768


@pytest.mark.parametrize(
    ("preset", "parameters", "of_base_model"),
    [
        ("gpt2", 124_439_808, 124_439_808),
        ("gpt2-medium", 354_823_168, 354_823_168),
        ("llama-160m", 162_417_408, 162_417_408 - 32_000 * 768),
        ("nano", 10_646_784, 10_646_784),
        ("bert-base", 109_514_298, 109_482_240),
        ("transformer-base", 63_082_496, 63_082_496),  # the paper's table 3 says 65 million
        ("transformer-big", 214_245_376, 214_245_376),  # and 213 million
        ("transformer-iwslt", 36_663_296, 36_663_296),
        ("transformer-tiny", 2_349_568, 2_349_568),
    ],
)
def test_parameters_of_presets(preset: str, parameters: int, of_base_model: int) -> None:
    config = PRESETS[preset].from_preset(preset)
    assert sum(count_parameters(config).values()) == parameters
    assert sum(count_parameters(config, with_head=False).values()) == of_base_model
