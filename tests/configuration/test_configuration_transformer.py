"""What all families' configurations promise: aliases, derived values, and errors that say what would be right."""

import itertools
import json

import pytest
from huggingface_hub.errors import StrictDataclassError

from paperformer import PaperformerEncoderConfig, PaperformerLMConfig, PaperformerSeq2SeqConfig

CONFIG_CLASSES = [PaperformerSeq2SeqConfig, PaperformerLMConfig, PaperformerEncoderConfig]
pytestmark = pytest.mark.parametrize("config_class", CONFIG_CLASSES)


def test_the_papers_names_set_and_read_the_fields_behind_them(config_class):
    config = config_class(d_model=96, d_ff=200, n_heads=6, n_layers=3)
    assert (config.hidden_size, config.intermediate_size, config.num_attention_heads) == (96, 200, 6)
    assert (config.num_hidden_layers, config.n_layers) == (3, 3)
    assert (config.head_dim, config.num_key_value_heads) == (16, 6)  # derived from the aliased fields
    config.d_model = 48
    assert (config.hidden_size, config.d_model) == (48, 48)
    assert "d_model" not in config.to_dict()


def test_head_width_and_key_value_heads_are_derived_unless_given(config_class):
    derived = config_class(hidden_size=64, num_attention_heads=4)
    assert (derived.head_dim, derived.num_key_value_heads) == (16, 4)
    grouped = config_class(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=10)
    assert (grouped.head_dim, grouped.num_key_value_heads) == (10, 2)


def test_a_given_head_width_frees_the_hidden_size(config_class):
    assert config_class(hidden_size=50, num_attention_heads=4, head_dim=16).hidden_size == 50
    assert config_class(hidden_size=50, num_attention_heads=4, head_dim=12).hidden_size == 50  # narrower than it


def test_zero_may_be_written_without_a_point(config_class):
    config = config_class(dropout=0, attention_dropout=0, activation_dropout=0, label_smoothing=0)
    assert config.dropout == 0


def test_only_rope_has_rope_parameters(config_class):
    rope = config_class(position_embedding_type="rope")
    assert rope.rope_parameters == {"rope_theta": 10_000.0, "rope_type": "default"}
    scaled = {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0}
    assert config_class(position_embedding_type="rope", rope_parameters=scaled).rope_parameters == scaled
    for position in ("sinusoidal", "learned", "alibi", "relative", "none"):
        assert config_class(position_embedding_type=position, rope_parameters=scaled).rope_parameters is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"vocab_size": 0}, "vocab_size is 0; it must be at least 1"),
        ({"hidden_size": -8}, "hidden_size is -8; it must be at least 1"),
        ({"intermediate_size": 0}, "intermediate_size is 0; it must be at least 1"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0; it must be at least 1"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0; it must be at least 1"),
        ({"head_dim": 0}, "head_dim is 0; it must be at least 1"),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0; it must be at least 1"),
        ({"norm_eps": 0.0}, r"norm_eps is 0.0; it must be greater than 0"),
        ({"initializer_range": -0.1}, r"initializer_range is -0.1; it must be greater than 0"),
        (
            {"num_attention_heads": 4, "num_key_value_heads": 3},
            r"num_key_value_heads is 3; it must divide num_attention_heads \(4\)",
        ),
        (
            {"hidden_size": 50, "num_attention_heads": 4},
            r"hidden_size is 50; it must be a multiple of num_attention_heads \(4\), or set head_dim",
        ),
        (
            {"position_embedding_type": "rope", "hidden_size": 60, "num_attention_heads": 4},
            "head_dim is 15; position_embedding_type 'rope' turns pairs, so it must be even",
        ),
        (
            {"position_embedding_type": "sinusoidal", "hidden_size": 15, "num_attention_heads": 3},
            "hidden_size is 15; position_embedding_type 'sinusoidal' needs an even one",
        ),
        ({"attention_window": 0}, "attention_window is 0; it must be at least 1"),
        ({"attention_stride": -2}, "attention_stride is -2; it must be at least 1"),
        ({"relative_attention_num_buckets": 2}, "relative_attention_num_buckets is 2; it must be a multiple of 4"),
        ({"relative_attention_num_buckets": 30}, "relative_attention_num_buckets is 30; it must be a multiple of 4"),
        (
            {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 16},
            "relative_attention_max_distance is 16; it must be greater than the 16 distances",
        ),
        *(
            (
                {"linear_attention": True, "attention_dropout": 0, "position_embedding_type": scheme},
                f"position_embedding_type is '{scheme}', which acts on the scores.*'sinusoidal', 'learned' or 'none'",
            )
            for scheme in ("rope", "alibi", "relative")
        ),
        (
            {
                "linear_attention": True,
                "attention_dropout": 0,
                "position_embedding_type": "none",
                "attention_window": 8,
            },
            "attention_window is 8; linear_attention sums over all positions at once, so it must be None",
        ),
        (
            {
                "linear_attention": True,
                "attention_dropout": 0,
                "position_embedding_type": "none",
                "attention_stride": 8,
            },
            "attention_stride is 8; linear_attention sums over all positions at once, so it must be None",
        ),
        (
            {"linear_attention": True, "attention_dropout": 0.1, "position_embedding_type": "none"},
            "attention_dropout is 0.1; linear_attention has no weights to drop, so it must be 0",
        ),
        ({"dropout": 1.0}, r"dropout is 1.0; it must be at least 0 and less than 1"),
        ({"attention_dropout": -0.1}, r"attention_dropout is -0.1; it must be at least 0 and less than 1"),
        ({"activation_dropout": 2}, "activation_dropout is 2; it must be at least 0 and less than 1"),
        ({"label_smoothing": 1}, "label_smoothing is 1; it must be at least 0 and less than 1"),
        ({"norm_type": "batchnorm"}, r"norm_type.*'layernorm', 'rmsnorm'.*batchnorm"),
        ({"norm_position": "front"}, r"norm_position.*'post', 'pre', 'peri'.*front"),
        (
            {"position_embedding_type": "3d"},
            r"position_embedding_type.*'sinusoidal', .*'alibi', 'relative', 'none'.*3d",
        ),
        ({"hidden_act": "tanh"}, r"hidden_act.*'relu', 'gelu', 'gelu_new', 'silu'.*tanh"),
        ({"initialization": "zeros"}, r"initialization.*'xavier', 'normal', 'gpt2'.*zeros"),
        ({"hidden_size": "big"}, r"hidden_size.*expected int, got str \(value: 'big'\)"),
        ({"dropout": "0.1"}, r"dropout(?s:.*)'0.1'"),
    ],
)
def test_an_error_names_the_field_the_value_and_what_would_be_right(config_class, wrong, message):
    with pytest.raises(StrictDataclassError, match=f"(?s){message}"):
        config_class(**wrong)


@pytest.mark.parametrize("name", ["head_dim", "num_key_value_heads"])
def test_a_derived_field_cannot_be_saved_as_none(config_class, name, tmp_path):
    config = config_class()
    setattr(config, name, None)
    with pytest.raises(StrictDataclassError, match=f"{name} is None; make a new configuration"):
        config.save_pretrained(tmp_path)


def test_fields_that_came_to_contradict_each_other_are_not_saved(config_class, tmp_path):
    config = config_class()
    config.num_key_value_heads = 5
    with pytest.raises(StrictDataclassError, match="num_key_value_heads is 5; it must divide"):
        config.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_saving_and_loading_keeps_every_field(config_class, tmp_path):
    config = config_class(
        d_model=48,
        n_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        norm_position="peri",
        position_embedding_type="rope",
        rope_parameters={"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
        dropout=0,
        eos_token_id=[2, 5],
    )
    config.save_pretrained(tmp_path)
    loaded = config_class.from_pretrained(tmp_path)
    assert loaded.to_dict() == config.to_dict()
    saved = json.loads((tmp_path / "config.json").read_text("utf-8"))
    assert saved["model_type"] == config_class.model_type
    assert saved["head_dim"] == 6


def test_all_published_options_can_be_combined_unless_a_paper_rules_it_out(config_class):
    """Everything with everything else, two options at a time, but for linear attention's own limits."""
    options = {
        "norm_position": ["post", "pre", "peri"],
        "norm_type": ["layernorm", "rmsnorm"],
        "position_embedding_type": ["sinusoidal", "learned", "rope", "alibi", "relative", "none"],
        "hidden_act": ["relu", "gelu", "gelu_new", "silu", "sigmoid"],
        "gated_mlp": [True, False],
        "use_bias": [True, False],
        "num_key_value_heads": [1, 2, 4],
        "qk_norm": [True, False],
        "embedding_norm": [True, False],
        "attention_window": [None, 4],
        "attention_stride": [None, 4],
        "initialization": ["xavier", "normal", "gpt2"],
        "scale_embedding": [True, False],
        "tie_word_embeddings": [True, False],
    }
    for (first, values), (second, others) in itertools.combinations(options.items(), 2):
        for value, other in itertools.product(values, others):
            config = config_class(hidden_size=32, num_attention_heads=4, **{first: value, second: other})
            assert (getattr(config, first), getattr(config, second)) == (value, other)


def test_the_tensor_parallel_plan_follows_the_options(config_class):
    plain, gated = (
        config_class(gated_mlp=on, position_embedding_type="none").base_model_tp_plan for on in (False, True)
    )
    assert {name.rpartition(".")[2] for name in gated.keys() - plain.keys()} == {"gate_proj"}
    assert set(gated.values()) == {"colwise", "rowwise"}
    assert config_class(position_embedding_type="alibi").base_model_tp_plan is None  # its bias is of all heads together
    config = config_class()
    plan = config.base_model_tp_plan
    config.base_model_tp_plan = {"embed_tokens": "embedding_rowwise"}  # as transformers before 5.21 does
    assert config.base_model_tp_plan == plan


def test_presets(config_class):
    for name in config_class.presets:
        config = config_class.from_preset(name)
        assert config_class.from_preset(name, d_model=64, n_heads=2).hidden_size == 64
        assert config_class.from_preset(name, vocab_size=77).vocab_size == 77
        shallow = config_class.from_preset(name, n_layers=2)
        assert (shallow.num_hidden_layers, getattr(shallow, "decoder_layers", 2)) == (2, 2)
        assert config.num_hidden_layers > 2  # the preset itself is as it was
    with pytest.raises(ValueError, match=f"{config_class.__name__} has no preset 'x'; there are '{name}'|, '{name}'"):
        config_class.from_preset("x")
    with pytest.raises(ValueError, match=f"did you mean '{name}'"):
        config_class.from_preset(f"{name}x")
