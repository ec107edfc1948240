"""The cache with room: what transformers' own holds, without a copy at every step."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer, EncoderDecoderCache

from paperformer.modeling.decoding import sampling
from paperformer.modeling.decoding.growing_cache import FEWEST_PLACES, GrowingLayer, make_room

from ...examples import examples

CHANGES = st.one_of(
    st.tuples(st.just("update"), st.integers(1, 50)),
    st.tuples(st.just("reorder_cache"), st.lists(st.integers(0, 1), min_size=2, max_size=2)),
    st.tuples(st.just("batch_select_indices"), st.lists(st.integers(0, 1), min_size=2, max_size=2)),
    st.tuples(st.just("batch_repeat_interleave"), st.just(1)),
    st.tuples(st.just("crop"), st.integers(-3, 0)),
)


def states(length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Keys and values, whose heads may differ in width."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, length, 4, generator=generator), torch.randn(2, 3, length, 5, generator=generator)


@given(st.lists(CHANGES, min_size=1, max_size=12))
@settings(max_examples=examples(60))
def test_it_holds_what_transformers_cache_holds(changes: list[tuple[str, Any]]) -> None:
    layers = DynamicLayer(), GrowingLayer()
    for seed, (name, value) in enumerate([("update", 4), *changes]):
        given_value = torch.tensor(value) if isinstance(value, list) else value
        arguments = states(value, seed) if name == "update" else (given_value,)
        expected, found = (getattr(layer, name)(*arguments) for layer in layers)
        if name == "update":
            assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
        assert torch.equal(layers[0].keys, layers[1].keys)
        assert torch.equal(layers[0].values, layers[1].values)
        assert layers[0].get_seq_length() == layers[1].get_seq_length()


def test_a_step_copies_nothing_while_there_is_room() -> None:
    layer = GrowingLayer()
    layer.update(*states(5, 0))
    place, places = layer.keys.data_ptr(), []
    for seed in range(FEWEST_PLACES):
        layer.update(*states(1, seed))
        places.append(layer.keys.data_ptr())
    assert places[: FEWEST_PLACES - 5] == [place] * (FEWEST_PLACES - 5)
    assert places[-1] != place


def test_what_was_given_out_is_not_written_over() -> None:
    layer = GrowingLayer()
    keys, _ = layer.update(*states(5, 0))
    before = keys.clone()
    layer.update(*states(3, 1))
    layer.reorder_cache(torch.tensor([1, 1]))
    layer.update(*states(3, 2))
    assert torch.equal(keys, before)


def test_what_does_not_grow_stays_what_it_was() -> None:
    cache = DynamicCache()
    cache.layers = [DynamicLayer(), DynamicSlidingWindowLayer(sliding_window=4)]
    cross = DynamicCache()
    make_room(EncoderDecoderCache(cache, cross))
    assert [type(layer) for layer in cache.layers] == [GrowingLayer, DynamicSlidingWindowLayer]
    assert cross.layer_class_to_replicate is DynamicLayer


def test_tokens_are_the_same_past_the_first_room(make_lm, make_seq2seq, monkeypatch) -> None:
    steps = FEWEST_PLACES + 10
    for make in (make_lm, make_seq2seq):
        model = make(max_position_embeddings=200, initializer_range=0.5).double()
        ids = torch.randint(3, 50, (3, 6), generator=torch.Generator().manual_seed(2))
        options = {"do_sample": False, "max_new_tokens": steps, "eos_token_id": [7], "pad_token_id": 0}
        found = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
        with monkeypatch.context() as patch:
            patch.setattr(sampling, "make_room", lambda cache: None)
            expected = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
        assert found.tolist() == expected.tolist()
        assert found.shape[1] > FEWEST_PLACES


def test_a_caller_s_cache_is_left_alone(make_lm) -> None:
    cache = DynamicCache()
    ids = torch.tensor([[5, 6, 7]])
    make_lm().generate(input_ids=ids, attention_mask=torch.ones_like(ids), past_key_values=cache, max_new_tokens=3)
    assert {type(layer) for layer in cache.layers} == {DynamicLayer}
