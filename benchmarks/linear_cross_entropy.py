"""`modeling/loss.py` beside torch's own: `python benchmarks/linear_cross_entropy.py`, which writes its results page.

Forward and backward pass of the loss of an output layer. Sides take turns, and their order changes from round to round;
a ratio is the median of the rounds' ratios. Peak memory is what a process of its own grows by in one pass, after a pass
over 8 tokens.

- ours: `paperformer.modeling.loss.linear_cross_entropy`.
- torch, chunked: `torch.nn.functional.linear_cross_entropy` with `LinearCrossEntropyOptions()` (torch >= 2.13). It
  leaves out of its chunks whatever is smoothed, so smoothing is added outside of it here, as epsilon times the
  difference between the label's logit and the mean logit. It takes no notice of autocast: its inputs are cast before.
- torch, all logits: `F.cross_entropy(F.linear(...))`, under autocast in float32 from the logits on.
"""

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paperformer.modeling.loss import linear_cross_entropy
from paperformer.training.engine.devices.hardware import describe_hardware

RESULTS = Path(__file__).parent / "results" / "linear_cross_entropy.md"


@dataclass(frozen=True)
class Case:
    """What the loss is computed of."""

    tokens: int
    hidden_size: int
    vocab_size: int
    is_half: bool
    label_smoothing: float

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states (N, E), weight (V, E), labels (N,)."""
        generator = torch.Generator().manual_seed(1)
        hidden = torch.randn(self.tokens, self.hidden_size, generator=generator)
        weight = torch.randn(self.vocab_size, self.hidden_size, generator=generator) * self.hidden_size**-0.5
        labels = torch.randint(self.vocab_size, (self.tokens,), generator=generator)
        return hidden.requires_grad_(), weight.requires_grad_(), labels

    def __str__(self) -> str:
        precision = "bf16 autocast" if self.is_half else "float32"
        sizes = f"{self.tokens:,} x {self.hidden_size:,} -> {self.vocab_size:,}"
        return f"{sizes} | {precision} | {self.label_smoothing}"


SIZES = ((4096, 128, 9700), (1024, 512, 8000), (768, 128, 96))
CASES = [Case(*sizes, is_half, smoothing) for sizes in SIZES for is_half in (False, True) for smoothing in (0.0, 0.1)]
Loss = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def ours(hidden: Tensor, weight: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    return linear_cross_entropy(hidden, weight, labels, label_smoothing=label_smoothing)


def torch_chunked(hidden: Tensor, weight: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    if torch.is_autocast_enabled("cpu"):
        hidden, weight = hidden.bfloat16(), weight.bfloat16()
    loss = F.linear_cross_entropy(hidden, weight, labels, options=nn.LinearCrossEntropyOptions()).float()
    if label_smoothing > 0:
        wide = weight.float()
        above_mean = F.embedding(labels, wide) - wide.mean(0)  # (N, E)
        loss = loss + label_smoothing * (hidden.float() * above_mean).sum(-1).mean()
    return loss


def torch_all_logits(hidden: Tensor, weight: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight).float(), labels, label_smoothing=label_smoothing)


SIDES: dict[str, Loss] = {
    "ours": ours,
    "torch, chunked": torch_chunked,
    "torch, all logits": torch_all_logits,
}


def run(side: str, case: Case, inputs: tuple[Tensor, Tensor, Tensor]) -> float:
    """Seconds of a forward and a backward pass."""
    hidden, weight, labels = inputs
    hidden.grad = weight.grad = None
    started = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=case.is_half):
        loss = SIDES[side](hidden, weight, labels, case.label_smoothing)
    loss.backward()
    return time.perf_counter() - started


def most_memory() -> float:
    """Megabytes that this process has had at most; not `getrusage`, which counts what its parent had as well."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def peak_memory(side: str, case: Case) -> float:
    """Megabytes that one pass adds to those this process had at most; for a fresh process."""
    torch.set_num_threads(1)
    hidden, weight, labels = case.inputs()
    few = (hidden[:8].detach().requires_grad_(), weight[:8].detach().requires_grad_(), labels[:8] % 8)
    run(side, case, few)  # loads what is loaded once
    before = most_memory()
    run(side, case, (hidden, weight, labels))
    return most_memory() - before


def gradient_error(side: str, case: Case) -> float:
    """Distance of the weight's gradient from float64's, relative to its length."""
    hidden, weight, labels = case.inputs()
    run(side, case, (hidden, weight, labels))
    assert weight.grad is not None
    found = weight.grad.double()
    exact_inputs = tuple(x.detach().double().requires_grad_() for x in (hidden, weight))
    loss = F.cross_entropy(F.linear(*exact_inputs), labels, label_smoothing=case.label_smoothing)
    (exact,) = torch.autograd.grad(loss, exact_inputs[1])
    return float((found - exact).norm() / exact.norm())


def measure(case: Case, rounds: int) -> list[str]:
    """The table's rows of a case."""
    inputs, seconds = case.inputs(), {side: [] for side in SIDES}
    for index in range(-1, rounds):  # the first warms up
        for side in [*SIDES][:: 1 if index % 2 else -1]:
            taken = run(side, case, inputs)
            if index >= 0:
                seconds[side].append(taken)
    rows = []
    for side, taken in seconds.items():
        ratio = statistics.median(own / other for own, other in zip(taken, seconds["ours"], strict=True))
        with get_context("spawn").Pool(1) as pool:
            memory = pool.apply(peak_memory, (side, case))
        error = gradient_error(side, case)
        milliseconds = 1000 * statistics.median(taken)
        rows.append(f"| {case} | {side} | {milliseconds:,.1f} ms | {ratio:.2f} | {memory:,.0f} MB | {error:.0e} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for case in CASES:
        rows += measure(case, options.rounds)
        print(*rows[-len(SIDES) :], sep="\n", flush=True)
    lines = [
        "# The loss of the output layer, beside torch's own",
        "",
        *(__doc__ or "").splitlines()[2:],
        "",
        f"- Command: `{shlex.join(['python', 'benchmarks/linear_cross_entropy.py', *sys.argv[1:]])}`",
        f"- Date: {datetime.now(UTC):%Y-%m-%d}",
        f"- Hardware: {describe_hardware()}, one thread",
        f"- Software: Python {sys.version.split()[0]}, torch {torch.__version__}; {options.rounds} rounds",
        "",
        "| tokens x hidden size -> vocabulary | precision | label smoothing | side | median time | time / ours "
        "| peak memory | error of the weight's gradient |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
    ]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
