"""Linear attention against its definition, position by position."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from paperformer import PaperformerLMConfig
from paperformer.modeling.attention import MultiHeadAttention
from paperformer.modeling.linear_attention import CHUNK_SIZE, feature_map, linear_attention, linear_attention_mask
from paperformer.modeling.masks import causal_mask

from ..examples import examples


def attention(*, is_causal: bool) -> MultiHeadAttention:
    config = PaperformerLMConfig(hidden_size=8, num_attention_heads=2, position_embedding_type="none")
    return MultiHeadAttention(config, 0, is_causal=is_causal)


def by_definition(query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
    """Katharopoulos et al. (2020), equation 3, with all T x S scores: (B, H, T, D) -> (B, T, H, D)."""
    key, value = (states.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for states in (key, value))
    scores = feature_map(query) @ feature_map(key).transpose(-2, -1) * visible
    weights = scores / scores.sum(-1, keepdim=True).where(visible.any(-1, keepdim=True), torch.ones(()))
    return (weights @ value).transpose(1, 2)


def test_the_feature_map_is_elu_plus_one():
    x = torch.tensor([-2.0, -1.0, 0.0, 1.0, 3.0])
    torch.testing.assert_close(feature_map(x), torch.tensor([0.1353, 0.3679, 1.0, 2.0, 4.0]), atol=1e-4, rtol=0)


@given(
    batch=st.integers(1, 2),
    length=st.sampled_from([1, 2, 7, CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 1, 3 * CHUNK_SIZE + 5]),
    past=st.sampled_from([0, 1, 5, 100]),
    groups=st.sampled_from([1, 2]),
    is_causal=st.booleans(),
    padding=st.integers(0, 3),
)
@settings(max_examples=examples(60))
def test_it_computes_its_definition(batch, length, past, groups, is_causal, padding):
    generator = torch.Generator().manual_seed(length * 1000 + past)
    query = torch.randn(batch, 4, length, 8, generator=generator, dtype=torch.float64)
    key, value = torch.randn(2, batch, 4 // groups, past + length, 8, generator=generator, dtype=torch.float64)
    real = torch.ones(batch, past + length, dtype=torch.bool)
    real[-1, :padding] = False
    visible = real[:, None, None]
    if is_causal:
        visible = visible & torch.ones(length, past + length, dtype=torch.bool).tril(past)
    expected = by_definition(query, key, value, visible)
    output, weights = linear_attention(attention(is_causal=is_causal), query, key, value, real)
    assert weights is None
    torch.testing.assert_close(output, expected)
    if padding == 0:
        torch.testing.assert_close(
            linear_attention(attention(is_causal=is_causal), query, key, value, None)[0], expected
        )


def test_its_gradients_are_those_of_the_definition():
    length = CHUNK_SIZE + 3
    states = torch.randn(3, 1, 2, length, 4, dtype=torch.float64)
    visible, weights = torch.ones(length, length, dtype=torch.bool).tril(), torch.randn(1, length, 2, 4)
    gradients = []
    for compute in (
        lambda q, k, v: linear_attention(attention(is_causal=True), q, k, v, None)[0],
        lambda q, k, v: by_definition(q, k, v, visible),
    ):
        inputs = states.clone().requires_grad_()
        (compute(*inputs) * weights).sum().backward()
        gradients.append(inputs.grad)
    torch.testing.assert_close(*gradients)


def test_rows_of_nothing_but_padding_are_zero_and_have_finite_gradients():
    query, key, value = torch.randn(3, 2, 2, 5, 4)
    query.requires_grad_()
    real = torch.tensor([[True] * 5, [False] * 5])
    for is_causal in (True, False):
        output, _ = linear_attention(attention(is_causal=is_causal), query, key, value, real)
        assert output[1].eq(0).all()
        assert torch.autograd.grad(output.sum(), query)[0].isfinite().all()


def test_sums_are_kept_in_float32():
    """In bfloat16 a sum of ones stops growing at 256."""
    length = 2000
    query, key = torch.zeros(2, 1, 1, length, 2).bfloat16()
    value = torch.linspace(-1, 1, length).view(1, 1, length, 1).expand(-1, -1, -1, 2).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = linear_attention(attention(is_causal=True), query, key, value, None)
    assert output.dtype == torch.bfloat16
    mean = value.float().cumsum(2)[0, 0, :, 0] / torch.arange(1, length + 1)
    torch.testing.assert_close(output[0, :, 0, 0].float(), mean, atol=5e-3, rtol=0)


@pytest.mark.parametrize("is_causal", [True, False])
def test_its_work_grows_linearly_with_length(is_causal):
    def flops(length: int) -> int:
        states = torch.empty(3, 1, 2, length, 16)
        with FlopCounterMode(display=False) as counter:
            linear_attention(attention(is_causal=is_causal), *states, None)
        return counter.get_total_flops()

    assert flops(8 * CHUNK_SIZE) == 8 * flops(CHUNK_SIZE) > 0


def mask_of(q_length: int, kv_length: int, q_offset: int, attention_mask: Tensor | None) -> Tensor | None:
    return linear_attention_mask(2, q_length, kv_length, q_offset=q_offset, attention_mask=attention_mask)


def test_the_mask_is_none_where_all_keys_are_real_and_seen():
    assert mask_of(4, 4, 0, None) is None
    assert mask_of(4, 6, 2, torch.ones(2, 6, dtype=torch.bool)) is None


def test_places_of_a_static_cache_that_are_not_taken_are_not_seen():
    padding = torch.tensor([[False, True, True], [True, True, True]])
    assert torch.equal(mask_of(3, 8, 0, padding), padding)  # a prompt of three, room for eight
    assert mask_of(3, 8, 0, None).tolist() == [[True] * 3] * 2
    assert mask_of(1, 5, 2, padding).tolist() == [[False, True, True, False, False], [True, True, True, False, False]]
    assert mask_of(1, 5, 2, None).tolist() == [[True, True, True, False, False]] * 2


def test_other_patterns_are_refused():
    config = PaperformerLMConfig(position_embedding_type="none", linear_attention=True)
    config._attn_implementation = "linear_attention"
    with pytest.raises(
        ValueError, match="can neither keep several sequences in a row apart nor follow another pattern"
    ):
        causal_mask(config, torch.empty(1, 4, 0), None, None, torch.tensor([[0, 1, 0, 1]]))


def test_it_is_another_function_than_softmax_attention(make_any_model):
    options = {"position_embedding_type": "sinusoidal"}
    ids = torch.randint(3, 50, (1, 6))
    with torch.no_grad():
        linear, softmax = (
            make_any_model(**options, linear_attention=on)(ids, labels=ids).logits for on in (True, False)
        )
    assert (linear - softmax).abs().max() > 0.1
