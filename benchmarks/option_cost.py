"""What the options cost a model that uses none of them: `python benchmarks/option_cost.py`.

The default language model beside the same function written out without options: one class, no configuration to ask, no
position scheme, residual or mask to compose, no attention interface, nothing to record. Both start from the same
weights, see the same batches, and must give the same loss. They take turns in one process, which of them first by
turns, so that whatever else the machine does meets both; the figure is the median over rounds of the ratio within a
round.
"""

import argparse
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paperformer import PaperformerForCausalLM, PaperformerLMConfig
from paperformer.modeling.loss import linear_cross_entropy

RESULTS = Path(__file__).parent / "results" / "option_cost.md"


@dataclass(frozen=True)
class Size:
    """A model and its batches; B sequences of T tokens."""

    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    vocab_size: int
    batch: int
    length: int
    steps: int
    """How many training steps a turn."""

    def __str__(self) -> str:
        return (
            f"{self.layers} layers, {self.hidden_size} wide, {self.intermediate_size} inner, {self.heads} heads, "
            f"vocabulary {self.vocab_size:,}, {self.batch} x {self.length} tokens"
        )


SIZES = {
    "characters": Size(4, 128, 352, 4, 96, 12, 64, steps=8),  # as small as models get: overhead shows most
    "subwords": Size(4, 128, 352, 4, 4096, 16, 128, steps=3),
    "default": Size(12, 768, 2048, 12, 32_000, 1, 256, steps=1),  # PaperformerLMConfig()
}


class StrippedBlock(nn.Module):
    """Pre-norm, RMSNorm, RoPE, SwiGLU, no biases: the defaults, and nothing else."""

    def __init__(self, size: Size):
        super().__init__()
        width = size.hidden_size
        self.heads = size.heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate_proj, self.up_proj = (nn.Linear(width, size.intermediate_size, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(size.intermediate_size, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.attention_norm(x)
        q, k, v = (
            projection(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, D)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)  # (B, T, E)
        x = x + self.o_proj(attended)
        h = self.mlp_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class StrippedLM(nn.Module):
    """The default language model without options."""

    def __init__(self, size: Size):
        super().__init__()
        self.embed_tokens = nn.Embedding(size.vocab_size, size.hidden_size)
        self.layers = nn.ModuleList(StrippedBlock(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden_size, eps=1e-5)
        head_dim = size.hidden_size // size.heads
        inverse = 10_000.0 ** -(torch.arange(0, head_dim, 2) / head_dim)
        angles = (torch.arange(size.length)[:, None] * inverse).repeat(1, 2)  # (T, D)
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, input_ids: Tensor) -> Tensor:
        """Token ids (B, T) -> loss of the next tokens."""
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return linear_cross_entropy(self.norm(x)[:, :-1], self.embed_tokens.weight, input_ids[:, 1:])


def build(size: Size) -> tuple[PaperformerForCausalLM, StrippedLM]:
    """The two models, with the same weights."""
    torch.manual_seed(0)
    config = PaperformerLMConfig(
        vocab_size=size.vocab_size,
        hidden_size=size.hidden_size,
        intermediate_size=size.intermediate_size,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        max_position_embeddings=size.length,
    )
    model, stripped = PaperformerForCausalLM(config).train(), StrippedLM(size).train()
    names = {"self_attn_residual.norm": "attention_norm", "mlp_residual.norm": "mlp_norm"}
    weights = {}
    for name, tensor in model.model.state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        weights[name.replace("self_attn.", "").replace("mlp.", "")] = tensor
    stripped.load_state_dict(weights)
    return model, stripped


def seconds_a_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Callable[[], Tensor], steps: int
) -> tuple[float, float]:
    """Mean seconds of a whole training step, and the last loss."""
    start = time.perf_counter()
    for _ in range(steps):
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.perf_counter() - start) / steps, loss.item()


def measure(size: Size, rounds: int) -> str:
    """A row of the table."""
    model, stripped = build(size)
    input_ids = torch.randint(0, size.vocab_size, (size.batch, size.length))
    runs = {
        "options": (model, lambda: model(input_ids=input_ids, labels=input_ids, return_logits=False).loss),
        "stripped": (stripped, lambda: stripped(input_ids)),
    }
    optimizers = {
        name: torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True) for name, (module, _) in runs.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        losses = {}
        for name in list(runs)[:: 1 if turn % 2 else -1]:
            module, loss_of = runs[name]
            elapsed, losses[name] = seconds_a_step(module, optimizers[name], loss_of, size.steps)
            if turn > 0:
                seconds[name].append(elapsed)
        # The first round warms up, and shows that both compute the same; later on, rounding takes them apart.
        if turn == 0 and abs(losses["options"] - losses["stripped"]) > 1e-5 * losses["stripped"]:
            raise RuntimeError(f"the two models are not the same function: {losses}")
    ratios = sorted(a / b for a, b in zip(seconds["options"], seconds["stripped"], strict=True))
    middle = [1000 * statistics.median(seconds[name]) for name in runs]
    quartiles = statistics.quantiles(ratios, n=4)
    print(f"{size}: {statistics.median(ratios):.3f} ({quartiles[0]:.3f} to {quartiles[2]:.3f})", file=sys.stderr)
    return (
        f"| {size} | {middle[0]:.1f} | {middle[1]:.1f} | {statistics.median(ratios):.3f} "
        f"({quartiles[0]:.3f} to {quartiles[2]:.3f}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21, help="turns of each model (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    load = os.getloadavg()[0]
    rows = [measure(size, options.rounds) for size in SIZES.values()]
    command = shlex.join(["python", "benchmarks/option_cost.py", *sys.argv[1:]])
    versions = ", ".join(f"{name} {version(name)}" for name in ("paperformer", "torch", "transformers"))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        "\n".join(
            [
                "# What unused options cost",
                "",
                "A training step (forward, backward, AdamW) of the default language model beside the same function "
                "written out without options,",
                f"taking turns in one process, {options.rounds} rounds. The ratio is the median over rounds, with "
                "quartiles.",
                "",
                f"- Command: `{command}`",
                f"- Date: {datetime.now(UTC):%Y-%m-%d}",
                f"- Hardware: {platform.machine()}, {options.threads} threads (load average at the start: {load:.1f})",
                f"- Software: Python {platform.python_version()}, {versions}",
                "",
                "| model and batch | with options, ms | without, ms | ratio |",
                "|---|---|---|---|",
                *rows,
                "",
            ]
        ),
        encoding="utf-8",
    )
    print(f"Written to {RESULTS}")


if __name__ == "__main__":
    main()
