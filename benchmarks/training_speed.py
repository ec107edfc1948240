"""Training speed beside transformers' own encoder-decoder: `make bench`.

Every row of the table is a process of its own, because the allocator setting and the peak of memory belong to a
process. The processes take turns on the same batches, one round each, so that whatever else the machine does
meets them all. A row's figure is the median over its rounds.
"""

import argparse
import json
import math
import os
import platform
import random
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel, PreTrainedModel
from transformers.trainer_pt_utils import LabelSmoother

from paperformer.configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from paperformer.modeling import loss as loss_module
from paperformer.modeling.dropout import Dropout
from paperformer.modeling.modeling_seq2seq import PaperformerForConditionalGeneration
from paperformer.training.allocator import keep_large_buffers
from paperformer.training.cpu_attention import SDPA_FLOAT32
from paperformer.training.data.batching import Batch, pad, token_budget_batches

RESULTS = Path(__file__).parent / "results" / "training_speed.md"
LABEL_SMOOTHING = 0.1


@dataclass(frozen=True)
class Size:
    """A model and its batches."""

    layers: int
    vocab_size: int
    tokens_per_batch: int
    typical_length: int
    hidden_size: int = 128
    intermediate_size: int = 512
    heads: int = 4
    dropout: float = 0.1

    def __str__(self) -> str:
        return (
            f"{self.layers}+{self.layers} layers, {self.hidden_size} wide, {self.intermediate_size} inner, "
            f"{self.heads} heads, vocabulary {self.vocab_size:,}, {self.tokens_per_batch:,} tokens a batch, "
            f"dropout {self.dropout}, label smoothing {LABEL_SMOOTHING}"
        )


SIZES = {
    "translation": Size(layers=4, vocab_size=9_700, tokens_per_batch=4096, typical_length=20),
    "quickstart": Size(layers=2, vocab_size=1_200, tokens_per_batch=1024, typical_length=10),
}


@dataclass(frozen=True)
class Row:
    """One way to train. Whatever is switched off is replaced by what one would write without this package."""

    title: str
    marian: bool = False
    bf16: bool = False
    chunked_loss: bool = True
    fast_dropout: bool = True
    allocator: bool = True


ROWS = [
    Row("MarianMTModel, eager, float32", marian=True, allocator=False),
    Row("MarianMTModel with our allocator setting", marian=True),
    Row("paperformer, float32"),
    Row("— without the chunked loss", chunked_loss=False),
    Row("— without the fast dropout", fast_dropout=False),
    Row("— without the allocator setting", allocator=False),
    Row("— without all three", chunked_loss=False, fast_dropout=False, allocator=False),
    Row("paperformer, bfloat16 autocast", bf16=True),
]

Figures = dict[str, dict[str, list[float]]]  # row title -> speed and peak -> a number a round


def make_batches(size: Size, count: int) -> list[Batch]:
    """Random sentence pairs with the spread of lengths that real corpora have, bucketed by length.

    Lengths are log-normal and a pair's two sides differ by up to a fifth. What the tokens are does not matter for
    speed. Both models get the same tensors, with as little padding as the package's own batching leaves.
    """
    rng = random.Random(0)
    lengths = []
    for _ in range(20_000):
        source = min(100, max(3, round(rng.lognormvariate(math.log(size.typical_length), 0.5))))
        lengths.append((source, max(3, round(source * rng.uniform(0.8, 1.2)))))
    groups = token_budget_batches(np.array(lengths), size.tokens_per_batch, np.random.default_rng(0))

    def sentence(length: int) -> list[int]:
        return [rng.randrange(4, size.vocab_size) for _ in range(length)]

    batches = []
    for group in groups[:count]:
        source = pad([sentence(lengths[i][0]) for i in group], 0)
        labels = pad([sentence(lengths[i][1]) for i in group], -100)
        batches.append({"input_ids": source, "attention_mask": (source != 0).long(), "labels": labels})
    return batches


def build_marian(size: Size) -> MarianMTModel:
    """Its attention is torch's SDPA, the default."""
    return MarianMTModel(
        MarianConfig(
            vocab_size=size.vocab_size,
            d_model=size.hidden_size,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            encoder_attention_heads=size.heads,
            decoder_attention_heads=size.heads,
            encoder_ffn_dim=size.intermediate_size,
            decoder_ffn_dim=size.intermediate_size,
            activation_function="relu",
            dropout=size.dropout,
            scale_embedding=True,
            max_position_embeddings=512,
            use_cache=False,
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=0,
            forced_eos_token_id=None,
        )
    )


def build_paperformer(size: Size) -> PaperformerForConditionalGeneration:
    """The same architecture by its defaults: post-norm, sinusoidal positions, ReLU, all embeddings tied."""
    return PaperformerForConditionalGeneration(
        PaperformerSeq2SeqConfig(
            vocab_size=size.vocab_size,
            hidden_size=size.hidden_size,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            num_attention_heads=size.heads,
            intermediate_size=size.intermediate_size,
            dropout=size.dropout,
            label_smoothing=LABEL_SMOOTHING,
            max_position_embeddings=512,
            use_cache=False,
        )
    )


def marian_loss(model: MarianMTModel, batch: Batch) -> Tensor:
    """The loss as transformers' Trainer computes it with label_smoothing_factor."""
    batch = dict(batch)
    labels = batch.pop("labels")
    outputs = model(**batch, decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels))
    return LabelSmoother(LABEL_SMOOTHING)(outputs, labels)


def paperformer_loss(model: PaperformerForConditionalGeneration, batch: Batch) -> Tensor:
    return model(**batch).loss


def full_logits_loss(
    hidden_states: Tensor, weight: Tensor, labels: Tensor, *, label_smoothing: float, **_: Any
) -> Tensor:
    logits = F.linear(hidden_states, weight)
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), label_smoothing=label_smoothing)


def train(row: Row, size: Size, batches: list[Batch]) -> Iterator[tuple[int, float]]:
    """Trains without end; yields the number of real target tokens and the seconds of each step."""
    if row.allocator:
        keep_large_buffers()
    if not row.chunked_loss:
        loss_module.linear_cross_entropy = full_logits_loss
    if not row.fast_dropout:
        Dropout.forward = nn.Dropout.forward
    torch.manual_seed(0)
    model: PreTrainedModel = build_marian(size) if row.marian else build_paperformer(size)
    if row.bf16:
        model.set_attn_implementation(SDPA_FLOAT32)  # as the training engine does
    compute_loss: Callable[..., Tensor] = marian_loss if row.marian else paperformer_loss
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    model.train()
    while True:
        for batch in batches:
            start = time.perf_counter()
            with torch.autocast("cpu", torch.bfloat16) if row.bf16 else nullcontext():
                loss = compute_loss(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            yield int((batch["labels"] != -100).sum()), time.perf_counter() - start


def work(row: Row, size: Size, options: argparse.Namespace) -> None:
    """The process of one row: for each line on standard input, one round; its figures go to standard output."""
    torch.set_num_threads(options.threads)
    steps = train(row, size, make_batches(size, 50))
    for _ in sys.stdin:
        tokens, seconds = zip(*(next(steps) for _ in range(options.steps)), strict=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"speed": sum(tokens) / sum(seconds), "peak": peak}), flush=True)


def measure(size_name: str, options: argparse.Namespace) -> Figures:
    """Lets the rows take turns. The first round warms up and is not counted."""
    arguments = [f"--size={size_name}", f"--steps={options.steps}", f"--threads={options.threads}"]
    workers = {
        row.title: subprocess.Popen(
            [sys.executable, __file__, *arguments, f"--worker={index}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index, row in enumerate(ROWS)
    }
    figures: Figures = {row.title: {"speed": [], "peak": []} for row in ROWS}
    try:
        for turn in range(options.rounds + 1):
            for title, worker in workers.items():
                assert worker.stdin is not None
                assert worker.stdout is not None
                worker.stdin.write("go\n")
                worker.stdin.flush()
                figure = json.loads(worker.stdout.readline())
                if turn > 0:
                    for name, value in figure.items():
                        figures[title][name].append(value)
                state = "warm-up" if turn == 0 else f"round {turn}"
                print(f"{state:8}  {title:45} {figure['speed']:8,.0f} tokens/s", file=sys.stderr)
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    return figures


def describe_parameters(size: Size) -> str:
    counts = []
    for model in (build_marian(size), build_paperformer(size)):
        positions = sum(p.numel() for name, p in model.named_parameters() if "embed_positions" in name)
        count = sum(p.numel() for p in model.parameters()) - positions
        fixed = f" and {positions:,} of fixed positions" if positions else ""
        counts.append(f"{type(model).__name__} {count:,}{fixed}")
    return ", ".join(counts)


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def report(size_name: str, figures: Figures) -> str:
    """One size's results as Markdown."""
    size = SIZES[size_name]
    lines = [
        f"## {size_name.capitalize()} size",
        "",
        f"{size}. Parameters: {describe_parameters(size)}.",
        "",
        "| | target tokens/s: median (lowest to highest round) | ratio | peak memory |",
        "|---|---|---|---|",
    ]
    base = statistics.median(figures[ROWS[0].title]["speed"])
    for title, figure in figures.items():
        speed = statistics.median(figure["speed"])
        spread = f"{min(figure['speed']):,.0f} to {max(figure['speed']):,.0f}"
        lines.append(f"| {title} | {speed:,.0f} ({spread}) | {speed / base:.2f} | {max(figure['peak']):,.0f} MB |")
    return "\n".join([*lines, ""])


def header(options: argparse.Namespace) -> str:
    command = shlex.join(["python", "benchmarks/training_speed.py", *sys.argv[1:]])
    versions = ", ".join(f"{name} {version(name)}" for name in ("paperformer", "torch", "transformers"))
    return f"""# Training speed

The same batches go through each row in turn: {options.rounds} rounds of {options.steps} steps, after one round that is
not counted. `MarianMTModel` is trained as transformers' Trainer does it, with the Trainer's label smoothing. All rows
have SDPA attention, the fused AdamW and gradient clipping. A row with a dash is paperformer in float32 with a feature
switched off; the chunked loss and the allocator setting both avoid taking large new buffers, so either makes up for
most of the other. Tokens are real target tokens, without padding. Memory is the peak of the process, some 400 MB of
which are Python, torch and transformers.

- Command: `{command}`
- Date: {datetime.now(UTC):%Y-%m-%d}
- Hardware: {processor()}, {options.threads} threads (load average before the start: {os.getloadavg()[0]:.1f})
- Software: Python {platform.python_version()}, {versions}
"""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, action="append", help="what to measure; default: every size")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each row (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=3, help="training steps a turn (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: %(default)s")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    if options.worker is not None:
        work(ROWS[options.worker], SIZES[options.size[0]], options)
        return
    sections = [header(options)]
    for size_name in options.size or SIZES:
        sections.append(report(size_name, measure(size_name, options)))
        print(sections[-1])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(sections), encoding="utf-8")
    print(f"Written to {RESULTS}")


if __name__ == "__main__":
    main()
