"""Memory of what training and generation keep all the time, from the configuration alone."""

from typing import Literal

from ...configuration.configuration_encoder import PaperformerEncoderConfig
from ...configuration.configuration_lm import PaperformerLMConfig
from ...modeling.families import Config
from .parameters import count_parameters
from .peak_flops import Precision

Optimizer = Literal["adamw", "momentum", "sgd"]

ELEMENT_SIZE: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of what matrix products read and write; all else is float32 (automatic mixed precision)."""

OPTIMIZER_STATES: dict[Optimizer, int] = {"adamw": 2, "momentum": 1, "sgd": 0}
"""Numbers that an optimizer keeps for each parameter: AdamW its means of gradients and of their squares."""


def state_bytes(config: Config, optimizer: Optimizer) -> dict[str, int]:
    """Memory of weights, gradients and optimizer states, all in float32: 4 + 4 + 8 bytes a parameter with AdamW.

    Rajbhandari et al. (2020, arXiv 1910.02054, section 3.1) also come to 16 bytes, for weights and gradients in float16
    beside a copy of the weights in float32; automatic mixed precision keeps the weights in float32, and copies in
    half precision only from the forward to the backward pass (see `activation_bytes`). AdamW's count of steps, 4 bytes
    a tensor, is left out.
    """
    parameters = sum(count_parameters(config).values())
    return {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer states": 4 * OPTIMIZER_STATES[optimizer] * parameters,
    }


def cache_bytes(config: Config, length: int, source_length: int = 0, *, precision: Precision = "fp32") -> int:
    """Memory of one sequence's keys and values after `length` tokens of generation.

    A token takes 2 N G D numbers in N blocks of G key-value heads of width D. A decoder holds those of its source as
    well. A language model with a window holds no more positions than the window has. An encoder generates nothing.
    """
    if isinstance(config, PaperformerEncoderConfig):
        return 0
    if isinstance(config, PaperformerLMConfig):
        blocks, positions = config.num_hidden_layers, min(length, config.sliding_window or length)
    else:
        blocks, positions = config.decoder_layers, length + source_length
    assert config.num_key_value_heads is not None  # both are derived by the configuration
    assert config.head_dim is not None
    return 2 * blocks * config.num_key_value_heads * config.head_dim * positions * ELEMENT_SIZE[precision]
