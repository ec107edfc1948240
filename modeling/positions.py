"""How the order of tokens enters the model: sinusoidal, learned, rotary, or not at all.

A position scheme is one module with two methods, each of which does nothing unless the scheme works that way:

- `add_to(embeddings, position_ids)`: absolute schemes add a vector for each position to the embeddings;
- `rotation(hidden_states, position_ids)`: rotary schemes return the cosines and sines by which self-attention turns
  its queries and keys.

Shapes: B batch, T length, E hidden size, H heads, D head width. Position ids are (B, T) or (1, T), counted from 0 and
not counting padding, so that left- and right-padded batches agree.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update

Rotation = tuple[torch.Tensor, torch.Tensor]


class NoPositions(nn.Module):
    """No position information; the base of the schemes, whose methods do nothing."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()

    def add_to(self, embeddings: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings (B, T, E) with absolute positions added."""
        return embeddings

    def rotation(self, hidden_states: torch.Tensor, position_ids: torch.Tensor) -> Rotation | None:
        """Cosines and sines, each (B, T, D), by which queries and keys are turned; None without RoPE."""
        return None


class SinusoidalPositions(NoPositions):
    """Fixed sine and cosine waves (Vaswani et al. 2017, section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/E)) and PE(pos, 2i+1) = cos(pos / 10000^(2i/E)): sines and cosines alternate.
    """

    def add_to(self, embeddings: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        # Computed on the fly: it is cheap, has no longest length, and a non-persistent buffer would be emptied when
        # `from_pretrained` builds the model on the meta device.
        hidden_size, device = embeddings.shape[-1], embeddings.device
        exponents = torch.arange(0, hidden_size, 2, device=device, dtype=torch.float32) / hidden_size
        angles = position_ids[..., None].to(device, torch.float32) / 10_000**exponents  # (B, T, E/2)
        waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)  # (B, T, E)
        return embeddings + waves.to(embeddings.dtype)


class LearnedPositions(NoPositions):
    """One learned vector for each position (Gehring et al. 2017, arXiv 1705.03122; Radford et al. 2019)."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.table = nn.Embedding(config.max_position_embeddings, config.hidden_size)

    def add_to(self, embeddings: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        return embeddings + self.table(position_ids)


class RotaryEmbedding(NoPositions):
    """Rotary position embedding, RoPE (Su et al. 2021, arXiv 2104.09864, section 3.2).

    The class name, `original_inv_freq` and `compute_default_rope_parameters` are what transformers looks for to refill
    the frequencies after building on the meta device; the scaled variants (linear, dynamic, yarn, llama3, ...) come
    from its registry through `config.rope_parameters["rope_type"]`.
    """

    inv_freq: torch.Tensor  # (D/2,)

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
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


def build_positions(config: PreTrainedConfig) -> NoPositions:
    """The scheme named by `config.position_embedding_type`."""
    schemes = {
        "sinusoidal": SinusoidalPositions,
        "learned": LearnedPositions,
        "rope": RotaryEmbedding,
        "none": NoPositions,
    }
    return schemes[config.position_embedding_type](config)


def position_ids_from_mask(
    attention_mask: torch.Tensor | None, length: int, past_length: int | torch.Tensor, device: torch.device
) -> torch.Tensor:
    """Positions of the last `length` tokens, counted without padding.

    Args:
        attention_mask: (B, S) with 1 for real tokens over past and current ones, or None if nothing is padded.
        length: T, how many positions are wanted.
        past_length: how many tokens are already in the cache (the offset where there is no mask).

    Returns:
        (B, T) if a mask is given, else (1, T). Padding gets position 0 or repeats its neighbour; it is masked anyway.
    """
    if attention_mask is not None and attention_mask.dim() == 2:
        return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:].to(device)
    return (torch.arange(length, device=device) + past_length).unsqueeze(0)
