"""A cache with room for the tokens to come, so that a step writes its own keys and values and copies no others.

transformers' `DynamicLayer` joins what it holds with what is new, which copies the whole cache at every step (9 ms, in
a model of GPT-2's size after 1,000 tokens). Here it is copied when the room is used up; then there is twice as much.

Shapes: B rows, G key-value heads, T new positions, S positions held, D head width.
"""

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

FEWEST_PLACES = 64
"""Of a layer, to begin with."""


class GrowingLayer(DynamicLayer):
    """As `DynamicLayer`, with the same keys and values, (B, G, S, D), as views of tensors that are longer."""

    room: tuple[Tensor, ...] = ()
    """Keys and values with the free places behind them; none where they were given other rows."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.room = ()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Takes up new keys and values, (B, G, T, D) each, and returns all, (B, G, S + T, D) each."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        past = self.get_seq_length()
        length = past + key_states.shape[-2]
        if not self.room or length > self.room[0].shape[-2]:
            places = max(FEWEST_PLACES, 2 * length)
            earlier: Any = (self.keys, self.values)
            self.room = tuple(
                new.new_empty(*new.shape[:-2], places, new.shape[-1]) for new in (key_states, value_states)
            )
            for room, states in zip(self.room, earlier, strict=True):
                if past:
                    room[..., :past, :] = states
        for room, new in zip(self.room, (key_states, value_states), strict=True):
            room[..., past:length, :] = new
        self.keys, self.values = (room[..., :length, :] for room in self.room)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Any) -> None:
        super().reorder_cache(beam_idx)
        self.room = ()

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self.room = ()

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self.room = ()


def make_room(cache: Cache | EncoderDecoderCache) -> None:
    """Lets an empty cache, or the part of it that grows with every step, keep room; not sliding windows."""
    growing: Any = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    if growing.layer_class_to_replicate is DynamicLayer:
        growing.layer_class_to_replicate = GrowingLayer
    growing.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in growing.layers]
