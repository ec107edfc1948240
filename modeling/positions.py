"""How the order of tokens enters the model: sinusoidal, learned, rotary, by a bias on the scores, or not at all.

A position scheme is one module with three methods, each of which does nothing unless the scheme works that way:

- `add_to(embeddings, position_ids)`: absolute schemes add a vector for each position to the embeddings;
- `rotation(hidden_states, position_ids)`: rotary schemes return the cosines and sines by which self-attention turns
  its queries and keys;
- `attention_bias(hidden_states, position_ids, ...)`: relative schemes return what self-attention adds to its scores.

Shapes: B batch, T query length, S key length, E hidden size, H heads, D head width. Position ids are (B, T) or (1, T),
counted from 0 and not counting padding, so that left- and right-padded batches agree.
"""

import math
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update

Rotation = tuple[torch.Tensor, torch.Tensor]


class NoPositions(nn.Module):
    """No position information; the base of the schemes, whose methods do nothing.

    Args:
        config: the model's configuration.
        is_causal: whether the stack only looks back, so that only distances to earlier positions matter.
    """

    title: ClassVar[str] = "No positions"
    """The scheme's name in figures."""

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__()

    def add_to(self, embeddings: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings (B, T, E) with absolute positions added."""
        return embeddings

    def rotation(self, hidden_states: torch.Tensor, position_ids: torch.Tensor) -> Rotation | None:
        """Cosines and sines, each (B, T, D), by which queries and keys are turned; None without RoPE."""
        return None

    def attention_bias(
        self,
        hidden_states: torch.Tensor,
        position_ids: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past_key_values: Cache | None,
    ) -> torch.Tensor | None:
        """What is added to the scores of every layer, (B or 1, H, T, S); None where the scheme adds nothing.

        Args:
            hidden_states: (B, T, E), for device and type.
            position_ids: of the queries, (B, T) or (1, T).
            attention_mask: (B, S), 1 for real tokens; the keys' positions are counted from it.
            past_key_values: the cache, before this step's keys are added; it says how many keys there will be.
        """
        return None


class SinusoidalPositions(NoPositions):
    """Fixed sine and cosine waves (Vaswani et al. 2017, section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/E)) and PE(pos, 2i+1) = cos(pos / 10000^(2i/E)): sines and cosines alternate.
    """

    title = "Sinusoidal positions"

    def add_to(self, embeddings: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        # Computed on the fly: it is cheap, has no longest length, and a non-persistent buffer would be emptied when
        # `from_pretrained` builds the model on the meta device.
        hidden_size, device = embeddings.shape[-1], embeddings.device
        exponents = torch.arange(0, hidden_size, 2, device=device, dtype=torch.float32) / hidden_size
        angles = position_ids[..., None].to(device, torch.float32) / 10_000**exponents  # (B, T, E/2)
        waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)  # (B, T, E)
        return embeddings + waves.to(embeddings.dtype)


class LearnedPositions(NoPositions):
    """One learned vector for each position (Gehring et al. 2017, arXiv 1705.03122; Radford et al. 2019).

    Raises:
        ValueError: if a position is past the table.
    """

    title = "Learned positions"

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.table = nn.Embedding(config.max_position_embeddings, config.hidden_size)

    def add_to(self, embeddings: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        size = self.table.num_embeddings
        # By the positions themselves: a row of several sequences, or of many pads, may be longer than the table.
        # Elsewhere than on a CPU, reading a value would wait for the device.
        if position_ids.device.type == "cpu" and not torch.compiler.is_compiling() and position_ids.numel():
            last = int(position_ids.max())
            if last >= size:
                raise ValueError(
                    f"position {last} is past the table of {size} learned positions; shorten the input (a prompt by "
                    "what is to follow: a pipeline's truncation=True fills the table, handle_long_generation='hole' "
                    "leaves room), or train with a larger max_position_embeddings"
                )
        return embeddings + self.table(position_ids)


class RotaryEmbedding(NoPositions):
    """Rotary position embedding, RoPE (Su et al. 2021, arXiv 2104.09864, section 3.2).

    The class name, `original_inv_freq` and `compute_default_rope_parameters` are what transformers looks for to refill
    the frequencies after building on the meta device; the scaled variants (linear, dynamic, yarn, llama3, ...) come
    from its registry through `config.rope_parameters["rope_type"]`.
    """

    title = "Rotary positions (RoPE)"
    inv_freq: torch.Tensor  # (D/2,)

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool = False):
        super().__init__(config, is_causal=is_causal)
        self.config = config
        self.max_seq_len_cached = self.original_max_seq_len = config.max_position_embeddings
        self.rope_type = config.rope_parameters["rope_type"]
        compute = ROPE_INIT_FUNCTIONS.get(self.rope_type, self.compute_default_rope_parameters)
        inv_freq, self.attention_scaling = compute(config)
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.register_buffer("original_inv_freq", inv_freq.clone(), persistent=False)

    @staticmethod
    def compute_default_rope_parameters(config: PreTrainedConfig, **kwargs: Any) -> tuple[torch.Tensor, float]:
        """Frequencies theta^(-2i/D) for i in [0, D/2), and a scale of 1 (Su et al. 2021, equation 15)."""
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        return 1.0 / config.rope_parameters["rope_theta"] ** exponents, 1.0

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, hidden_states: torch.Tensor, position_ids: torch.Tensor) -> Rotation:
        angles = position_ids[..., None].float() * self.inv_freq.float()  # (B, T, D/2)
        angles = torch.cat((angles, angles), dim=-1)  # (B, T, D): the two halves of a head turn together
        cos, sin = angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling
        return cos.to(hidden_states.dtype), sin.to(hidden_states.dtype)

    def rotation(self, hidden_states: torch.Tensor, position_ids: torch.Tensor) -> Rotation:
        return self(hidden_states, position_ids)


def rotate(heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Turns each pair (i, i + D/2) of every head by its angle (Su et al. 2021, equation 34, half-split layout).

    Args:
        heads: queries or keys, (B, H, T, D).
        rotation: cosines and sines, each (B, T, D) or (1, T, D).
    """
    cos, sin = (part.unsqueeze(1) for part in rotation)  # (B, 1, T, D)
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin


class DistanceBias(NoPositions):
    """A scheme that adds to each score a number that depends on the head and on how far apart the two positions are."""

    def attention_bias(
        self,
        hidden_states: torch.Tensor,
        position_ids: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past_key_values: Cache | None,
    ) -> torch.Tensor:
        keys = key_position_ids(position_ids, attention_mask, past_key_values)
        return self.bias(keys[:, None] - position_ids[..., None]).to(hidden_states.dtype)  # (B, H, T, S)

    def bias(self, distances: torch.Tensor) -> torch.Tensor:
        """The numbers for key position minus query position, (B, T, S) -> (B, H, T, S)."""
        raise NotImplementedError


class AlibiPositions(DistanceBias):
    """Attention with linear biases: each head penalises distance at a rate of its own (Press et al. 2022).

    The bias of head h is -slope_h |i - j|. Slopes are computed where they are needed, as no buffer would survive
    building on the meta device.
    """

    title = "Linear biases (ALiBi)"

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.num_heads = config.num_attention_heads

    def bias(self, distances: torch.Tensor) -> torch.Tensor:
        slopes = alibi_slopes(self.num_heads, distances.device)[:, None, None]  # (H, 1, 1)
        return -slopes * distances.abs()[:, None]


def alibi_slopes(num_heads: int, device: torch.device | None = None) -> torch.Tensor:
    """Slope of each head, (H,), the steepest first: 2^(-8i/H) for i = 1 ... H (Press et al. 2022, section 3).

    Where H is no power of two, the heads beyond the last one below it take every second slope of the next.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    exponents = torch.arange(1, power + 1, device=device) * (8 / power)
    between = (2 * torch.arange(num_heads - power, device=device) + 1) * (4 / power)
    return 2.0 ** -torch.cat((exponents, between))


class RelativePositions(DistanceBias):
    """A learned bias for each head and bucket of distances, shared by all layers (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each; the others grow logarithmically up to
    `relative_attention_max_distance`, and the last holds all that is farther. In an encoder one half of the buckets is
    for what is behind, the other for what is ahead.
    """

    title = "Relative position biases"

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.is_causal = is_causal
        self.max_distance = config.relative_attention_max_distance
        self.table = nn.Embedding(config.relative_attention_num_buckets, config.num_attention_heads)

    def bias(self, distances: torch.Tensor) -> torch.Tensor:
        return self.table(self._bucket(distances)).permute(0, 3, 1, 2)

    def _bucket(self, distances: torch.Tensor) -> torch.Tensor:
        """Index into the table for key position minus query position, both (B, T, S)."""
        buckets = self.table.num_embeddings if self.is_causal else self.table.num_embeddings // 2
        ahead = 0 if self.is_causal else (distances > 0) * buckets
        # A causal stack masks what is ahead, so there any bucket would do.
        distances = -distances.clamp(max=0) if self.is_causal else distances.abs()
        exact = buckets // 2
        growth = torch.log(distances.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = exact + (growth * (buckets - exact)).long()
        return ahead + torch.where(distances < exact, distances, far.clamp(max=buckets - 1))


POSITION_SCHEMES: dict[str, type[NoPositions]] = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
    "rope": RotaryEmbedding,
    "alibi": AlibiPositions,
    "relative": RelativePositions,
    "none": NoPositions,
}


def build_positions(config: PreTrainedConfig, *, is_causal: bool = False) -> NoPositions:
    """The scheme named by `config.position_embedding_type`, for a stack that looks both ways or only back."""
    return POSITION_SCHEMES[config.position_embedding_type](config, is_causal=is_causal)


def position_ids_from_mask(
    attention_mask: torch.Tensor | None, length: int, past_length: int | torch.Tensor, device: torch.device
) -> torch.Tensor:
    """Positions of `length` tokens after the first `past_length`, counted without padding.

    Args:
        attention_mask: (B, S) with 1 for real tokens over past and current ones, or None if nothing is padded.
        length: T, how many positions are wanted.
        past_length: how many tokens are already in the cache.

    Returns:
        (B, T) if a mask is given, else (1, T). Padding gets position 0 or repeats its neighbour; it is masked anyway.
    """
    slots = torch.arange(length, device=device) + past_length  # (T,)
    if attention_mask is not None and attention_mask.dim() == 2:
        return _count_real_tokens(attention_mask.to(device))[:, slots]
    return slots.unsqueeze(0)


def key_position_ids(
    position_ids: torch.Tensor, attention_mask: torch.Tensor | None, past_key_values: Cache | None
) -> torch.Tensor:
    """Positions of all keys, (B, S) or (1, S): those in the cache and the current ones.

    Without a cache they are the queries' own. With one they are counted from the mask; where there is none, the places
    in the cache follow each other, up to the queries' positions.
    """
    if past_key_values is None:
        return position_ids
    length, offset = past_key_values.get_mask_sizes(position_ids.shape[1], 0)
    slots = torch.arange(length, device=position_ids.device) + offset  # (S,)
    if attention_mask is None or attention_mask.dim() != 2:
        return slots + (position_ids[:, :1] - past_key_values.get_seq_length())
    # A static cache has places that no token has taken yet; they are masked, whatever their position.
    return _count_real_tokens(attention_mask)[:, slots.clamp(max=attention_mask.shape[1] - 1)]


def _count_real_tokens(attention_mask: torch.Tensor) -> torch.Tensor:
    """How many real tokens come before each place, (B, S) -> (B, S)."""
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)
