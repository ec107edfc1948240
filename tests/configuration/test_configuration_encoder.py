"""The encoder's configuration: BERT base, but for the pooling."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import BertConfig

from paperformer import PaperformerEncoderConfig, PaperformerForMaskedLM


def test_the_defaults_are_bert_base():
    ours, bert = PaperformerEncoderConfig(), BertConfig()
    for name in (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "hidden_act"),
        *("max_position_embeddings", "type_vocab_size", "initializer_range", "pad_token_id", "tie_word_embeddings"),
    ):
        assert getattr(ours, name) == getattr(bert, name), name
    assert ours.norm_eps == bert.layer_norm_eps
    assert (ours.dropout, ours.attention_dropout) == (bert.hidden_dropout_prob, bert.attention_probs_dropout_prob)
    assert (ours.norm_position, ours.norm_type, ours.position_embedding_type) == ("post", "layernorm", "learned")
    assert ours.embedding_norm
    assert not ours.scale_embedding


@pytest.mark.parametrize(("wrong", "message"), [
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be at least 1"),
    ({"type_vocab_size": -1}, "type_vocab_size is -1; it must be at least 0"),
    ({"pooling": "max"}, r"pooling.*'first', 'mean'.*max"),
])  # fmt: skip
def test_an_error_names_the_field_the_value_and_what_would_be_right(wrong, message):
    with pytest.raises(StrictDataclassError, match=f"(?s){message}"):
        PaperformerEncoderConfig(**wrong)


def test_the_tensor_parallel_plan_names_real_modules():
    with torch.device("meta"):
        model = PaperformerForMaskedLM(PaperformerEncoderConfig(num_hidden_layers=1))
    modules = {name.replace(".0.", ".*.") for name, _ in model.model.named_modules()}
    assert {name for name in modules if name.endswith("_proj")} == model.config.base_model_tp_plan.keys()
