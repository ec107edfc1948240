"""Batches, optimizer, learning rate, precision."""

from dataclasses import dataclass
from typing import Literal

from .checks import check_at_least, check_fraction, check_positive


@dataclass(kw_only=True)
class Optimization:
    """Batches, optimizer, learning rate, precision."""

    max_steps: int = 10_000
    """Optimizer steps."""

    tokens_per_batch: int = 4096
    """Tokens of a batch on one device, padding included; for translation, of the longer side."""

    accumulation_steps: int = 1
    """Batches whose gradients are summed before a step; the sum is divided once, by all their tokens."""

    split_batches: int | Literal["auto"] = 1
    """Parts into which each batch is cut on its device, computed one after the other, where it does not fit into memory
    whole; the update is the same. auto finds the fewest that fit memory_budget."""

    memory_budget: float | None = None
    """Gigabytes (10^9 bytes) that each process may take, of its GPU or all in all on a CPU; by default nine
    tenths of what is free. The longest batch is tried before training starts."""

    optimizer: Literal["adamw", "adam", "adafactor", "muon", "schedule_free"] = "adamw"
    """adamw (Loshchilov and Hutter 2017, arXiv 1711.05101), adam (Kingma and Ba 2014, arXiv 1412.6980; decays weights
    through the gradient), adafactor (Shazeer and Stern 2018, arXiv 1804.04235; takes little memory), muon (Jordan et
    al. 2024) for the matrices of the blocks and adamw for all else, or schedule_free (the AdamW of Defazio et al. 2024,
    arXiv 2405.15682), which averages the weights over all steps instead of lowering the learning rate: schedule must be
    constant, and training can end at any step. The learning_rate of adafactor is relative to the root mean square of
    each parameter (1e-2 in its paper); the others take those of adamw, schedule_free also higher ones."""

    learning_rate: float | Literal["paper"] = 1e-3
    """Peak learning rate, reached at the end of the warm-up. paper is that of Vaswani et al. (2017), equation 3:
    (hidden_size * warmup_steps) ** -0.5."""

    schedule: Literal["inverse_sqrt", "cosine", "linear", "wsd", "constant"] = "inverse_sqrt"
    """Learning rate after the warm-up: inverse_sqrt (Vaswani et al. 2017, equation 3), cosine (Loshchilov and Hutter
    2016, arXiv 1608.03983) or linear down to final_learning_rate at the last step, wsd (warm-up, stable, decay; Hu et
    al. 2024, arXiv 2404.06395; the decay is the 1-sqrt of Hägele et al. 2024, arXiv 2405.18392), or constant."""

    warmup_steps: int = 1000
    """Steps over which the learning rate rises linearly; the first step has 1 / warmup_steps of the peak. 0 is as 1."""

    decay_steps: int | None = None
    """Of wsd: how many of the last steps decay; by default a fifth of all; never those of the warm-up."""

    final_learning_rate: float = 0.0
    """Of cosine, linear and wsd: the learning rate of the last step, as a fraction of the peak."""

    adam_beta1: float = 0.9
    """Decay of Adam's mean of gradients; of schedule_free, how near to the weights' average gradients are taken."""

    adam_beta2: float = 0.98
    """Decay of Adam's mean of squared gradients; 0.98 in Vaswani et al. (2017), section 5.3."""

    adam_epsilon: float = 1e-9
    """Added to the root of the mean of squares; 1e-9 in Vaswani et al. (2017), section 5.3."""

    muon_momentum: float = 0.95
    """Decay of Muon's mean of gradients."""

    weight_decay: float = 0.0
    """Weight decay of the matrices of linear layers; norms, biases and embeddings have none, nor has an output layer
    that is tied to the embedding."""

    max_grad_norm: float = 1.0
    """Clip the gradient to this norm (Pascanu et al. 2013, arXiv 1211.5063)."""

    r_drop: float = 0.0
    """Weight of the divergence between two passes with different dropout (R-Drop, Liang et al. 2021, arXiv 2106.14448;
    5 there for translation): often a BLEU point on small data, for twice the time."""

    ema_decay: float = 0.0
    """Decay of an exponential moving average of the weights, which is then what is validated and saved, for example
    0.999; 0 keeps none."""

    mixed_precision: Literal["no", "bf16", "fp16", "tf32"] = "no"
    """Matrix products in bfloat16, in float16 with a scaled loss, or in TensorFloat-32 (on NVIDIA GPUs since Ampere);
    weights and optimizer stay in float32."""

    fast_attention: bool = False
    """On a CPU, with attention_dropout: attention by its formula in few passes, since torch's own has no fast dropout.
    The mathematics are the same; rounding, and what dropout drops, are not."""

    compile: bool = False
    """Compile the blocks with torch.compile, once for all lengths: a minute at the start, faster steps on a GPU."""

    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "max_steps", "tokens_per_batch", "accumulation_steps")
        check_at_least(self, 0, "warmup_steps", "weight_decay", "r_drop")
        check_at_least(self, 1, "decay_steps")
        check_positive(self, "memory_budget", "adam_epsilon", "max_grad_norm")
        check_fraction(self, "adam_beta1", "adam_beta2", "muon_momentum", "ema_decay")
        if self.split_batches != "auto":
            check_at_least(self, 1, "split_batches")
        if self.learning_rate != "paper":
            check_positive(self, "learning_rate")
        elif self.warmup_steps < 1:
            raise ValueError("warmup_steps is 0; with the paper's learning_rate it must be at least 1")
        if self.optimizer == "schedule_free":
            self._check_schedule_free()
        if self.fast_attention:
            self._check_fast_attention()
        if not 0 <= self.final_learning_rate <= 1:
            raise ValueError(f"final_learning_rate is {self.final_learning_rate}; it must be from 0 to 1")

    def _check_fast_attention(self) -> None:
        if self.mixed_precision not in ("no", "bf16"):
            raise ValueError(
                f"fast_attention is true and mixed_precision {self.mixed_precision}; with it that must be no or bf16"
            )
        if self.compile:
            raise ValueError("fast_attention is true and so is compile; one of them must be false")

    def _check_schedule_free(self) -> None:
        if self.schedule != "constant":
            raise ValueError(
                f"schedule is {self.schedule}; with the optimizer schedule_free, which averages the weights instead of "
                "lowering the learning rate, it must be constant"
            )
        if self.ema_decay > 0:
            raise ValueError(f"ema_decay is {self.ema_decay}; the optimizer schedule_free averages by itself: leave it")
        if self.adam_beta1 == 0:
            raise ValueError("adam_beta1 is 0; with the optimizer schedule_free it must be greater")
