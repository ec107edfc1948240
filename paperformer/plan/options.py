"""What to plan, as the command line says it."""

from dataclasses import dataclass
from typing import Literal

from ..training.console.input_error import InputError


@dataclass(kw_only=True)
class PlanOptions:
    """What to plan, and for what."""

    preset: str | None = None
    """A published architecture: transformer-base, transformer-big, transformer-iwslt, transformer-tiny; gpt2,
    gpt2-medium, llama-160m, nano; bert-base."""

    model: str | None = None
    """Instead of a preset, a model's folder, of which config.json is read."""

    tokens: float | None = None
    """Tokens to train on, repetitions included, such as 3e9; for translation, target tokens, with as many of the
    source. By default 20 a parameter."""

    hardware: str | None = None
    """Device to train on: P100, V100, T4, RTX3090, RTX4090, L4, A100, H100, H200, or this, whose speed is measured in
    one second."""

    flops: float | None = None
    """Instead of a device of that list, the peak floating-point operations a second of yours, such as 1e14."""

    devices: int = 1
    """How many such devices train together."""

    utilisation: float = 0.4
    """Share of the peak speed that training reaches. A well-fed GPU reaches 0.3 to 0.5 with large models, and less with
    small ones."""

    precision: Literal["fp32", "bf16", "fp16"] = "bf16"
    """Type of matrix products and of cached keys and values; weights and optimizer stay in float32."""

    batch_tokens: int | None = None
    """Tokens of a batch on one device, padding included; for translation, of one side. By default 4096, or one sequence
    if that is longer."""

    sequence_length: int | None = None
    """Tokens of a sequence; for translation, of each side. By default the longest that the model is made for, and 128
    for translation."""

    optimizer: Literal["adamw", "momentum", "sgd"] = "adamw"
    """AdamW keeps two numbers for each parameter, SGD with momentum one, plain SGD none."""

    attention: Literal["sdpa", "eager"] = "sdpa"
    """Implementation of attention: sdpa is torch's, which never holds all scores; eager holds them."""

    gradient_checkpointing: bool = False
    """Compute blocks again in the backward pass instead of keeping what they have computed."""

    json: bool = False
    """Print JSON, with plain numbers, instead of a table."""

    def __post_init__(self) -> None:
        for name in ("tokens", "flops", "devices", "batch_tokens", "sequence_length"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"--{name} is {value:g}; it must be greater than 0 and finite")
        if not 0 < self.utilisation <= 1:
            raise InputError(f"--utilisation is {self.utilisation:g}; it must be greater than 0 and at most 1")
        for one, other in (("preset", "model"), ("hardware", "flops")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise InputError(f"--{one} and --{other} are both given; give one of them")
