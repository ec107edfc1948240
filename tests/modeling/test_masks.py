"""Patterns of attention: which positions see which, in the masks and through whole models."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicSlidingWindowLayer

from paperformer import PaperformerEncoderConfig, PaperformerLMConfig
from paperformer.modeling.masks import bidirectional_mask, causal_mask

from ..examples import examples

PATTERNS = [
    {"attention_window": 1},
    {"attention_window": 3},
    {"attention_stride": 4},
    {"attention_window": 2, "attention_stride": 3},
    {"attention_window": 4, "attention_stride": 4},  # Child et al. (2019), figure 3b
]


def sees(query: int, key: int, attention_window: int | None = None, attention_stride: int | None = None) -> bool:
    """The definition: near enough, or a multiple of the stride away."""
    near = attention_window is not None and abs(query - key) < attention_window
    on_stride = attention_stride is not None and abs(query - key) % attention_stride == 0
    return near or on_stride or attention_window is attention_stride is None


def table(size: int, causal: bool, pattern: dict[str, int]) -> Tensor:
    return torch.tensor([[sees(q, k, **pattern) and (k <= q or not causal) for k in range(size)] for q in range(size)])


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@given(length=st.integers(1, 12), padding=st.integers(0, 4), left=st.booleans())
@settings(max_examples=examples(20))
def test_masks_follow_the_definition(pattern, length, padding, left):
    size = length + padding
    real = torch.ones(2, size, dtype=torch.bool)  # the second row has padding
    real[1, slice(0, padding) if left else slice(length, size)] = False
    embeddings = torch.empty(2, size, 0)
    for config_class, causal in ((PaperformerLMConfig, True), (PaperformerEncoderConfig, False)):
        config = config_class(position_embedding_type="none", attn_implementation="sdpa", **pattern)
        mask = causal_mask(config, embeddings, real, None) if causal else bidirectional_mask(config, embeddings, real)
        assert torch.equal(mask, (table(size, causal, pattern) & real[:, None])[:, None])


def test_without_options_and_padding_there_is_no_mask():
    """None is the fast path: no (B, 1, T, T) tensor is made, and sdpa may choose its fastest kernel."""
    config, embeddings = PaperformerLMConfig(attn_implementation="sdpa"), torch.empty(2, 5, 0)
    assert causal_mask(config, embeddings, torch.ones(2, 5), None) is None
    assert bidirectional_mask(config, embeddings, None) is None


def influences(model: torch.nn.Module, length: int) -> Tensor:
    """Which input positions (columns) each output position (rows) depends on, by gradients."""
    embeddings = model.get_input_embeddings()(torch.arange(3, 3 + length)[None]).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[0]
    rows = [torch.autograd.grad(row.norm(), embeddings, retain_graph=True)[0][0].abs().sum(-1) > 0 for row in logits]
    return torch.stack(rows)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_a_token_depends_on_what_its_layers_let_it_see(make_lm, make_encoder, pattern, layers):
    """One layer sees its pattern; the next also sees what the first has brought nearer."""
    for make, causal in ((make_lm, True), (make_encoder, False)):
        model = make(num_hidden_layers=layers, position_embedding_type="none", **pattern)
        reached = torch.linalg.matrix_power(table(10, causal, pattern).float(), layers) > 0
        assert torch.equal(influences(model, 10), reached)


def test_source_and_target_have_the_pattern_and_cross_attention_has_not(make_seq2seq):
    model = make_seq2seq(attention_window=2, encoder_layers=1, decoder_layers=1, attn_implementation="eager")
    ids = torch.arange(3, 9)[None]
    with torch.no_grad():
        output = model(ids, decoder_input_ids=ids, output_attentions=True)
    near = {"attention_window": 2}
    assert torch.equal(output.encoder_attentions[0][0, 0] > 0, table(6, False, near))
    assert torch.equal(output.decoder_attentions[0][0, 0] > 0, table(6, True, near))
    assert (output.cross_attentions[0] > 0).all()


@torch.no_grad()
def test_a_cache_keeps_no_more_than_the_window_sees(make_lm):
    model = make_lm(attention_window=3)
    cache = DynamicCache(config=model.config)
    assert all(isinstance(layer, DynamicSlidingWindowLayer) for layer in cache.layers)
    ids = torch.randint(3, 50, (1, 9))
    steps = [model(ids[:, i : i + 1], past_key_values=cache, use_cache=True).logits for i in range(9)]
    torch.testing.assert_close(torch.cat(steps, 1), model(ids).logits, rtol=1e-4, atol=1e-4)
    assert cache.layers[0].keys.shape[2] == 2  # with the current one it is three
    strided = DynamicCache(config=make_lm(attention_window=3, attention_stride=2).config)
    assert not any(isinstance(layer, DynamicSlidingWindowLayer) for layer in strided.layers)
