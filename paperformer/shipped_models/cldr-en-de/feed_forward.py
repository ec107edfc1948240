"""The position-wise feed-forward sub-layer (Vaswani et al. 2017, section 3.3), plain and gated.

Shapes: B batch, T length, E hidden size, F intermediate size.
"""

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from .dropout import Dropout


def build_activation(config: PreTrainedConfig) -> nn.Module:
    """The activation function `config.hidden_act`; gelu_new by its formula in one operation instead of eight."""
    activation: nn.Module = ACT2FN["gelu_pytorch_tanh" if config.hidden_act == "gelu_new" else config.hidden_act]
    return activation


class FeedForward(nn.Module):
    """FFN(x) = act(x W_up) W_down, the same at every position (Vaswani et al. 2017, equation 2).

    With `config.gated_mlp` the up projection is gated: (act(x W_gate) * (x W_up)) W_down (Shazeer 2020,
    arXiv 2002.05202, equation 6; SwiGLU when the activation is SiLU).
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.use_bias)
        self.gate_proj = (
            nn.Linear(config.hidden_size, config.intermediate_size, bias=config.use_bias) if config.gated_mlp else None
        )
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.use_bias)
        self.down_proj.writes_to_residual = True  # type: ignore[assignment]  # a mark for the gpt2 initialisation
        self.activation = build_activation(config)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.gate_proj is None:
            inner = self.activation(self.up_proj(hidden_states))  # (B, T, F)
        else:
            inner = self.activation(self.gate_proj(hidden_states)) * self.up_proj(hidden_states)  # (B, T, F)
        return self.down_proj(self.dropout(inner))  # (B, T, E)
