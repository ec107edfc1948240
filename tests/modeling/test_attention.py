"""Attention against the paper's equation, and the kinds of it against each other."""

import pytest
import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from paperformer import PaperformerSeq2SeqConfig
from paperformer.modeling.attention import MultiHeadAttention
from paperformer.modeling.positions import build_positions

HIDDEN_SIZE, HEADS = 16, 4


def attention(implementation: str = "eager", *, is_causal: bool = False, **options) -> MultiHeadAttention:
    torch.manual_seed(0)
    config = PaperformerSeq2SeqConfig(
        hidden_size=HIDDEN_SIZE,
        num_attention_heads=HEADS,
        position_embedding_type="rope",
        attn_implementation=implementation,
        **options,
    )
    return MultiHeadAttention(config, 0, is_causal=is_causal).double().eval()


def states(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, HIDDEN_SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def causal_mask(length: int) -> torch.Tensor:
    """Added to the scores, (1, 1, T, T)."""
    return torch.full((length, length), -1e30, dtype=torch.float64).triu(1)[None, None]


def literal(module: MultiHeadAttention, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Concat(head_1, ..., head_H) W_O, one head after the other (Vaswani et al. 2017, section 3.2.2)."""
    heads, width, per_group = [], module.head_dim, HEADS // (module.k_proj.out_features // module.head_dim)
    for h in range(HEADS):
        q = slice(h * width, (h + 1) * width)
        kv = slice(h // per_group * width, (h // per_group + 1) * width)
        query = queries @ module.q_proj.weight[q].T + module.q_proj.bias[q]
        key = keys @ module.k_proj.weight[kv].T + module.k_proj.bias[kv]
        value = keys @ module.v_proj.weight[kv].T + module.v_proj.bias[kv]
        heads.append(torch.softmax(query @ key.mT / width**0.5, dim=-1) @ value)
    return torch.cat(heads, dim=-1) @ module.o_proj.weight.T + module.o_proj.bias


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("options", [{}, {"num_key_value_heads": 2}, {"num_key_value_heads": 1}, {"head_dim": 6}])
def test_multi_head_attention_is_the_papers(implementation, options):
    module, x, source = attention(implementation, **options), states(2, 5), states(2, 7)
    torch.testing.assert_close(module(x)[0], literal(module, x, x), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(module(x, source)[0], literal(module, x, source), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("num_key_value_heads", [1, 2])
def test_grouped_queries_are_repeated_keys_and_values(num_key_value_heads):
    grouped, full = attention(num_key_value_heads=num_key_value_heads), attention()
    repeated = grouped.state_dict()
    for name, tensor in repeated.items():
        if name.startswith(("k_proj", "v_proj")):
            heads = tensor.unflatten(0, (num_key_value_heads, -1))
            repeated[name] = heads.repeat_interleave(HEADS // num_key_value_heads, dim=0).flatten(0, 1)
    full.load_state_dict(repeated)
    torch.testing.assert_close(grouped(states(2, 5)), full(states(2, 5)))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("num_key_value_heads", [4, 2])
def test_eager_equals_sdpa(is_causal, masked, num_key_value_heads):
    options = {"is_causal": is_causal, "num_key_value_heads": num_key_value_heads}
    eager, sdpa, x = attention("eager", **options), attention("sdpa", **options), states(2, 5)
    padding = torch.zeros(2, 1, 5, 5, dtype=torch.float64)
    padding[0, :, :, 3:] = -1e30
    mask = causal_mask(5) if is_causal else None
    mask = padding + (0 if mask is None else mask) if masked else mask
    # Without padding sdpa gets no mask at all, and goes by `is_causal`.
    torch.testing.assert_close(
        eager(x, attention_mask=mask)[0], sdpa(x, attention_mask=mask if masked else None)[0], atol=1e-6, rtol=1e-6
    )


def test_the_weights_of_a_query_sum_to_one_and_spare_what_is_masked():
    _, weights = attention()(states(2, 5), attention_mask=causal_mask(5))
    assert weights.shape == (2, HEADS, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, HEADS, 5, dtype=torch.float64), atol=1e-6, rtol=0)
    assert weights.triu(1).count_nonzero() == 0
    assert (weights.tril() > 0).sum() == 2 * HEADS * 15


def test_weights_are_dropped_while_training_only(monkeypatch):
    calls: list[tuple[float, bool]] = []

    def record(weights, p, training):
        calls.append((p, training))
        return weights * 0 if training else weights

    monkeypatch.setattr(torch.nn.functional, "dropout", record)
    module, x = attention(attention_dropout=0.3), states(2, 5)
    module.eval()(x)
    output, _ = module.train()(x)
    assert calls == [(0.0, False), (0.3, True)]
    torch.testing.assert_close(output, module.o_proj.bias.expand_as(output))  # nothing goes past the dropped weights


def test_rope_turns_queries_and_keys_but_no_values():
    module, x = attention(), states(1, 5)
    rotation = build_positions(module.config).rotation(x, torch.arange(5)[None])
    shifted = build_positions(module.config).rotation(x, torch.arange(100, 105)[None])
    torch.testing.assert_close(module(x, rotation=rotation)[0], module(x, rotation=shifted)[0], atol=1e-4, rtol=0)
    assert (module(x, rotation=rotation)[0] - module(x)[0]).abs().max() > 1e-3
    # A single key gets all the attention, however it is turned: what comes out is its value.
    late = tuple(part[:, 3:4] for part in rotation)
    torch.testing.assert_close(module(x[:, :1], rotation=late)[0], module(x[:, :1])[0])


def test_a_cache_stands_in_for_earlier_positions():
    module, x = attention(is_causal=True), states(2, 6)
    whole, _ = module(x, attention_mask=causal_mask(6))
    cache = DynamicCache()
    parts = [
        module(x[:, :4], attention_mask=causal_mask(4), past_key_values=cache)[0],
        module(x[:, 4:5], past_key_values=cache)[0],
        module(x[:, 5:], past_key_values=cache)[0],
    ]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)
    assert cache.layers[0].keys.shape == (2, HEADS, 6, HIDDEN_SIZE // HEADS)


def test_cross_attention_computes_keys_and_values_of_the_source_once():
    module, x, source = attention(), states(2, 3), states(2, 7)
    expected, _ = module(x, source)
    calls: list[str] = []
    for name in ("k_proj", "v_proj"):
        getattr(module, name).register_forward_hook(lambda *_, name=name: calls.append(name))
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    steps = [module(x[:, i : i + 1], source, past_key_values=cache)[0] for i in range(3)]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected)
    assert sorted(calls) == ["k_proj", "v_proj"]
    assert cache.cross_attention_cache.get_seq_length() == 7
    assert cache.self_attention_cache.get_seq_length() == 0
