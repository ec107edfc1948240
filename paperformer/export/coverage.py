"""Which options each format can say, as a table: asked of the formats themselves, option by option."""

from typing import Any

from ..modeling.families import FAMILIES
from ..training.reporting.markdown import markdown_table
from .formats.format import Format
from .formats.registry import FORMATS

SIZE: dict[str, Any] = {
    "vocab_size": 41,
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_attention_heads": 3,
    "max_position_embeddings": 64,
    "attention_dropout": 0.0,
}

_ROPE = {"position_embedding_type": "rope"}
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


def _scaled(rope_type: str, **parameters: Any) -> dict[str, Any]:
    return _ROPE | {"rope_parameters": {"rope_type": rope_type, "rope_theta": 10_000.0, **parameters}}


OPTIONS: dict[str, dict[str, Any]] = {
    "norm_position post": {"norm_position": "post"},
    "norm_position pre": {"norm_position": "pre"},
    "norm_position peri": {"norm_position": "peri"},
    "norm_type layernorm": {"norm_type": "layernorm"},
    "norm_type rmsnorm": {"norm_type": "rmsnorm"},
    "embedding_norm": {"embedding_norm": True},
    "positions sinusoidal": {"position_embedding_type": "sinusoidal"},
    "positions learned": {"position_embedding_type": "learned"},
    "positions rope": _ROPE,
    "rope scaled: linear": _scaled("linear", factor=2.0),
    "rope scaled: llama3": _scaled("llama3", factor=4.0, original_max_position_embeddings=32, **_LLAMA3),
    "rope scaled: yarn": _scaled("yarn", factor=4.0, original_max_position_embeddings=16),
    "rope scaled: dynamic": _scaled("dynamic", factor=2.0),
    "positions alibi": {"position_embedding_type": "alibi"},
    "positions relative": {"position_embedding_type": "relative"},
    "positions none": {"position_embedding_type": "none"},
    "num_key_value_heads below num_attention_heads": {"num_key_value_heads": 1},
    "head_dim of its own": {"head_dim": 12},
    "qk_norm": {"qk_norm": True},
    "attention_window": {"attention_window": 3},
    "attention_stride": {"attention_stride": 3},
    "linear_attention": {"linear_attention": True, "position_embedding_type": "learned"},
    "hidden_act relu": {"hidden_act": "relu"},
    "hidden_act gelu": {"hidden_act": "gelu"},
    "hidden_act gelu_new": {"hidden_act": "gelu_new"},
    "hidden_act silu": {"hidden_act": "silu"},
    "hidden_act sigmoid": {"hidden_act": "sigmoid"},
    "gated_mlp": {"gated_mlp": True},
    "no gated_mlp": {"gated_mlp": False},
    "use_bias": {"use_bias": True},
    "no use_bias": {"use_bias": False},
    "scale_embedding": {"scale_embedding": True},
    "tie_word_embeddings off": {"tie_word_embeddings": False},
}
"""A name for the table -> the fields, on top of each family's defaults."""

FAMILY_TITLES = {"seq2seq": "encoder-decoder", "lm": "language model", "encoder": "encoder"}


def config_of(family: str, fields: dict[str, Any]) -> Any:
    """A tiny configuration of a family with these fields."""
    return FAMILIES[family].config(**{**SIZE, **fields})


def coverage_table() -> str:
    """Markdown: a row an option, a column a format and family; yes where the format can say it."""
    columns = [(one, family) for one in FORMATS.values() for family in one.families]
    titles = ["Option", *(f"{one.title}, {FAMILY_TITLES[family]}" for one, family in columns)]
    rows = [
        [name, *("yes" if says(one, family, fields) else "no" for one, family in columns)]
        for name, fields in OPTIONS.items()
    ]
    return markdown_table(titles, rows)


def says(one: Format, family: str, fields: dict[str, Any]) -> bool:
    """Whether a format can say an option of a family."""
    return any(not any(one.refused(config_of(family, {**base, **fields}))) for base in one.families[family])
