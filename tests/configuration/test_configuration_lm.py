"""The language model's configuration: today's usual choices, at the size of GPT-2 small."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from paperformer import PaperformerForCausalLM, PaperformerLMConfig


def test_the_defaults_are_todays_usual_choices():
    config = PaperformerLMConfig()
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (768, 12, 12)
    assert (config.norm_position, config.norm_type) == ("pre", "rmsnorm")
    assert config.position_embedding_type == "rope"
    assert (config.hidden_act, config.gated_mlp, config.use_bias) == ("silu", True, False)
    assert (config.dropout, config.label_smoothing) == (0, 0)
    assert not config.scale_embedding
    assert not config.is_encoder_decoder


def test_the_model_has_at_least_one_layer():
    with pytest.raises(StrictDataclassError, match="num_hidden_layers is 0; it must be at least 1"):
        PaperformerLMConfig(num_hidden_layers=0)


def test_the_tensor_parallel_plan_names_real_modules():
    with torch.device("meta"):
        model = PaperformerForCausalLM(PaperformerLMConfig(num_hidden_layers=1))
    modules = {name.replace(".0.", ".*.") for name, _ in model.model.named_modules()}
    projections = {name for name in modules if name.endswith("_proj")}
    assert projections == PaperformerLMConfig().base_model_tp_plan.keys()


def test_transformers_caches_find_the_window_under_their_name():
    config = PaperformerLMConfig(attention_window=16)
    assert config.sliding_window == 16
    config.sliding_window = 8
    assert config.attention_window == 8
    assert PaperformerLMConfig(attention_window=16, attention_stride=4).sliding_window is None  # it sees farther
    assert PaperformerLMConfig(attention_window=1).sliding_window is None  # nothing to keep, which no cache can do
    assert "sliding_window" not in config.to_dict()
