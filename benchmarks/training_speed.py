"""Training speed beside transformers' own encoder-decoder and nanoGPT: `make bench`.

Every row of the table is a process of its own, because the allocator setting and the peak of memory belong to a
process. The processes take turns on the same batches, one round each, so that whatever else the machine does
meets them all. A row's figure is the median over its rounds.

nanoGPT is no package: the rows of the language model need a checkout of its repository, `--nanogpt PATH`. Results of
sizes that are not measured stay as they are.
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
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from nanogpt import load_nanogpt
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel
from transformers.trainer_pt_utils import LabelSmoother

from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from paperformer.modeling import loss as loss_module
from paperformer.modeling.dropout import Dropout
from paperformer.modeling.modeling_lm import PaperformerForCausalLM
from paperformer.modeling.modeling_seq2seq import PaperformerForConditionalGeneration
from paperformer.training.data.batches.token_budget import Batch, pad, token_budget_batches
from paperformer.training.engine.devices import cpu_attention
from paperformer.training.engine.devices.cpu_attention import SDPA_FLOAT32, use_fast_attention
from paperformer.training.engine.memory.allocator import keep_large_buffers

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
    lengths: Literal["log-normal", "equal"] = "log-normal"
    language_model: bool = False
    steps: int = 3  # a turn

    def __str__(self) -> str:
        layers = f"{self.layers}" if self.language_model else f"{self.layers}+{self.layers}"
        smoothing = "" if self.language_model else f", label smoothing {LABEL_SMOOTHING}"
        length = f" in sequences of {self.typical_length}" if self.lengths == "equal" else ""
        return (
            f"{layers} layers, {self.hidden_size} wide, {self.intermediate_size} inner, {self.heads} heads, "
            f"vocabulary {self.vocab_size:,}, {self.tokens_per_batch:,} tokens a batch{length}, "
            f"dropout {self.dropout}{smoothing}"
        )


SIZES = {
    "translation": Size(layers=4, vocab_size=9_700, tokens_per_batch=4096, typical_length=20),
    "quickstart": Size(layers=2, vocab_size=1_200, tokens_per_batch=1024, typical_length=10),
}
EQUAL_LENGTH_SIZES = {
    "transformer-base": Size(
        layers=6,
        vocab_size=8_000,
        tokens_per_batch=1024,
        typical_length=32,
        hidden_size=512,
        intermediate_size=2048,
        heads=8,
        lengths="equal",
        steps=2,
    ),
    "characters": Size(  # nanoGPT's Shakespeare on a CPU, as its README has it
        layers=4,
        vocab_size=65,
        tokens_per_batch=12 * 64,
        typical_length=64,
        dropout=0.0,
        lengths="equal",
        language_model=True,
        steps=30,
    ),
    "shakespeare": Size(  # the model of nanoGPT's Shakespeare on a GPU, with smaller batches
        layers=6,
        vocab_size=65,
        tokens_per_batch=4 * 256,
        typical_length=256,
        hidden_size=384,
        intermediate_size=1536,
        heads=6,
        dropout=0.2,
        lengths="equal",
        language_model=True,
        steps=2,
    ),
}
ALL_SIZES = SIZES | EQUAL_LENGTH_SIZES


@dataclass(frozen=True)
class Row:
    """One way to train. Whatever is switched off is replaced by what one would write without this package."""

    title: str
    peer: bool = False
    bf16: bool = False
    chunked_loss: bool = True
    fast_dropout: bool = True
    short_attention: bool = True
    allocator: bool = True
    fast_attention: bool = False


TRANSLATION_ROWS = [
    Row("MarianMTModel, eager, float32", peer=True, allocator=False),
    Row("MarianMTModel with our allocator setting", peer=True),
    Row("paperformer, float32"),
    Row("— without the chunked loss", chunked_loss=False),
    Row("— without the fast dropout", fast_dropout=False),
    Row("— without the allocator setting", allocator=False),
    Row("— without all three", chunked_loss=False, fast_dropout=False, allocator=False),
    Row("paperformer, bfloat16 autocast", bf16=True),
]
LANGUAGE_MODEL_ROWS = [
    Row("nanoGPT, eager, float32", peer=True, allocator=False),
    Row("nanoGPT with our allocator setting", peer=True),
    Row("nanoGPT with our allocator setting, bfloat16 autocast", peer=True, bf16=True),
    Row("paperformer, float32"),
    Row("— with fast_attention, float32", fast_attention=True),
    Row("paperformer, bfloat16 autocast", bf16=True),
    Row("— with fast_attention, bfloat16", bf16=True, fast_attention=True),
]
ROWS = {
    "translation": TRANSLATION_ROWS,
    "quickstart": TRANSLATION_ROWS,
    "transformer-base": [
        Row("MarianMTModel, eager, bfloat16 autocast", peer=True, bf16=True, allocator=False),
        Row("MarianMTModel with our allocator setting", peer=True, bf16=True),
        Row("paperformer, bfloat16 autocast", bf16=True),
        Row("— without attention for short sequences", bf16=True, short_attention=False),
        Row("— without the chunked loss", bf16=True, chunked_loss=False),
        Row("— without the fast dropout", bf16=True, fast_dropout=False),
        Row("— without the allocator setting", bf16=True, allocator=False),
    ],
    "characters": LANGUAGE_MODEL_ROWS,
    "shakespeare": LANGUAGE_MODEL_ROWS,
}

Figures = dict[str, dict[str, list[float]]]  # row title -> speed and peak -> a number a round


def make_batches(size: Size, count: int) -> list[Batch]:
    """Random sentence pairs with the spread of lengths that real corpora have, bucketed by length.

    Lengths are log-normal and a pair's two sides differ by up to a fifth. What the tokens are does not matter for
    speed. Both models get the same tensors, with as little padding as the package's own batching leaves. Sequences of
    equal length have none, and for a language model the labels are the next tokens.
    """
    rng = random.Random(0)
    if size.lengths == "equal":
        generator = torch.Generator().manual_seed(0)
        rows = size.tokens_per_batch // size.typical_length
        return [equal_lengths(size, rows, generator) for _ in range(count)]
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


def equal_lengths(size: Size, rows: int, generator: torch.Generator) -> Batch:
    shape = (2, rows, size.typical_length + 1)
    sources, targets = torch.randint(4, size.vocab_size, shape, generator=generator)
    if size.language_model:
        return {"input_ids": sources[:, :-1].contiguous(), "labels": sources[:, 1:].contiguous()}
    source = sources[:, 1:].contiguous()
    return {"input_ids": source, "attention_mask": torch.ones_like(source), "labels": targets[:, 1:].contiguous()}


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


def build_nanogpt(size: Size, checkout: Path) -> nn.Module:
    """`GPT` of the checkout, without biases, as its training script has it by default."""
    module = load_nanogpt(checkout)
    config = module.GPTConfig(
        block_size=size.typical_length,
        vocab_size=size.vocab_size,
        n_layer=size.layers,
        n_head=size.heads,
        n_embd=size.hidden_size,
        dropout=size.dropout,
        bias=False,
    )
    return module.GPT(config)


def build_language_model(size: Size) -> PaperformerForCausalLM:
    """nanoGPT's architecture: GPT-2's without biases, with the exact GELU."""
    return PaperformerForCausalLM(
        PaperformerLMConfig(
            vocab_size=size.vocab_size,
            hidden_size=size.hidden_size,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            intermediate_size=size.intermediate_size,
            hidden_act="gelu",
            gated_mlp=False,
            use_bias=False,
            norm_type="layernorm",
            position_embedding_type="learned",
            max_position_embeddings=size.typical_length,
            dropout=size.dropout,
            attention_dropout=size.dropout,
            use_cache=False,
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
    return model(**batch, return_logits=False).loss


def nanogpt_loss(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["input_ids"], batch["labels"])[1]


def language_model_loss(model: PaperformerForCausalLM, batch: Batch) -> Tensor:
    return model(input_ids=batch["input_ids"], shift_labels=batch["labels"], return_logits=False).loss


def full_logits_loss(
    hidden_states: Tensor, weight: Tensor, labels: Tensor, *, label_smoothing: float, **_: Any
) -> Tensor:
    logits = F.linear(hidden_states, weight)
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), label_smoothing=label_smoothing)


def build(row: Row, size: Size, nanogpt: Path | None) -> tuple[nn.Module, Callable[..., Tensor], torch.optim.Optimizer]:
    """A row's model, how its loss is computed, and its optimizer: the peer's own where the peer brings one."""
    if not size.language_model:
        model = build_marian(size) if row.peer else build_paperformer(size)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
        return model, marian_loss if row.peer else paperformer_loss, optimizer
    if row.peer:
        assert nanogpt is not None
        with redirect_stdout(sys.stderr):  # it prints; standard output is for figures
            model = build_nanogpt(size, nanogpt)
            return model, nanogpt_loss, model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    model = build_language_model(size)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    return model, language_model_loss, torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)


def train(
    row: Row,
    size: Size,
    batches: list[Batch],
    nanogpt: Path | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[int, float]]:
    """Trains without end; yields the number of real target tokens and the seconds of each step."""
    if row.allocator:
        keep_large_buffers()
    if not row.chunked_loss:
        loss_module.linear_cross_entropy = full_logits_loss
    if not row.fast_dropout:
        Dropout.forward = nn.Dropout.forward
    if not row.short_attention:
        cpu_attention.MAX_SCORES = 0
    torch.manual_seed(0)
    model, compute_loss, optimizer = build(row, size, nanogpt)
    if row.bf16 and not row.peer:
        model.set_attn_implementation(SDPA_FLOAT32)  # as the training engine does
    if row.fast_attention:
        use_fast_attention(model, torch.device("cpu"))
    model.train()
    while True:
        for batch in batches:
            start = clock()
            with torch.autocast("cpu", torch.bfloat16) if row.bf16 else nullcontext():
                loss = compute_loss(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            yield int((batch["labels"] != -100).sum()), clock() - start


def work(row: Row, size: Size, options: argparse.Namespace) -> None:
    """The process of one row: for each line on standard input, one round; its figures go to standard output."""
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.cpu_time else time.perf_counter
    steps = train(row, size, make_batches(size, 50), options.nanogpt, clock)
    for _ in sys.stdin:
        tokens, seconds = zip(*(next(steps) for _ in range(options.steps or size.steps)), strict=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"speed": sum(tokens) / sum(seconds), "peak": peak}), flush=True)


def measured_rows(size_name: str, options: argparse.Namespace) -> list[Row]:
    """The rows of a size, without nanoGPT's where there is no checkout of it."""
    without_peer = ALL_SIZES[size_name].language_model and options.nanogpt is None
    return [row for row in ROWS[size_name] if not (row.peer and without_peer)]


def measure(size_name: str, options: argparse.Namespace) -> Figures:
    """Lets the rows take turns. The first round warms up and is not counted."""
    arguments = [f"--size={size_name}", f"--threads={options.threads}"]
    arguments += [f"--steps={options.steps}"] if options.steps else []
    arguments += ["--cpu_time"] if options.cpu_time else []
    arguments += [f"--nanogpt={options.nanogpt}"] if options.nanogpt else []
    rows = measured_rows(size_name, options)
    workers = {
        row.title: subprocess.Popen(
            [sys.executable, __file__, *arguments, f"--worker={ROWS[size_name].index(row)}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for row in rows
    }
    figures: Figures = {row.title: {"speed": [], "peak": []} for row in rows}
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
                print(f"{state:8}  {title:53} {figure['speed']:8,.0f} tokens/s", file=sys.stderr)
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    return figures


def describe_parameters(size: Size, nanogpt: Path | None) -> str:
    counts = []
    models: list[nn.Module] = []
    # Without memory: a process that is started later inherits this one's peak.
    with torch.device("meta"), redirect_stdout(sys.stderr):
        if not size.language_model:
            models += [build_marian(size), build_paperformer(size)]
        else:
            models += [build_nanogpt(size, nanogpt)] if nanogpt else []
            models.append(build_language_model(size))
    for model in models:
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


def report(size_name: str, figures: Figures, options: argparse.Namespace) -> str:
    """One size's results as Markdown."""
    size = ALL_SIZES[size_name]
    lines = [
        f"## {size_name.capitalize()} size",
        "",
        f"{size}. Parameters: {describe_parameters(size, options.nanogpt)}.",
        "",
        *circumstances(options),
        "",
    ]
    if len(figures) < len(ROWS[size_name]):
        lines += ["nanoGPT is left out: `--nanogpt PATH` was not given, a checkout of its repository.", ""]
    lines += [
        "| | target tokens/s: median (lowest to highest round) | ratio | peak memory |",
        "|---|---|---|---|",
    ]
    rows = {row.title: row for row in ROWS[size_name]}
    for title, figure in figures.items():
        peers = [row.title for row in rows.values() if row.peer and row.bf16 == rows[title].bf16]
        base = statistics.median(figures[next((p for p in peers if p in figures), next(iter(figures)))]["speed"])
        speed = statistics.median(figure["speed"])
        spread = f"{min(figure['speed']):,.0f} to {max(figure['speed']):,.0f}"
        lines.append(f"| {title} | {speed:,.0f} ({spread}) | {speed / base:.2f} | {max(figure['peak']):,.0f} MB |")
    return "\n".join([*lines, ""])


def circumstances(options: argparse.Namespace) -> list[str]:
    """When and where this is measured, and how."""
    arguments = ["PATH" if argument == str(options.nanogpt) else argument for argument in sys.argv[1:]]
    command = shlex.join(["python", "benchmarks/training_speed.py", *arguments])
    versions = ", ".join(f"{name} {version(name)}" for name in ("paperformer", "torch", "transformers"))
    time_is = "the process's CPU time, since others used the machine" if options.cpu_time else "the clock's"
    return [
        f"- Command: `{command}`",
        f"- Date: {datetime.now(UTC):%Y-%m-%d}",
        f"- Hardware: {processor()}, {options.threads} threads (load average before: {os.getloadavg()[0]:.1f})",
        f"- Software: Python {platform.python_version()}, {versions}",
        f"- {options.rounds} rounds; time is {time_is}",
    ]


def sections_before() -> dict[str, str]:
    """The results that are there already, by the names of sizes."""
    if not RESULTS.exists():
        return {}
    _, *sections = RESULTS.read_text(encoding="utf-8").split("\n## ")
    return {section.partition(" size\n")[0].lower(): f"## {section.strip()}\n" for section in sections}


HEADER = """# Training speed

The same batches go through each row in turn: rounds of a few steps, after one round that is not counted. A step is
forward, backward, clipping and AdamW. `MarianMTModel` is trained as transformers' Trainer does it, with the Trainer's
label smoothing, nanoGPT with its own optimizer; all others have the fused AdamW, and attention is torch's SDPA unless a
row says otherwise. A row with a dash is paperformer with a feature switched off, or with an option; the chunked loss
and the allocator setting both avoid taking large new buffers, so either makes up for most of the other. Tokens are real
target tokens, without padding. Ratios are to the first row of a peer in the same precision, and where there is none to
the first row. Memory is the peak of the process, some 400 MB of which are Python, torch and transformers.
"""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=ALL_SIZES, action="append", help="what to measure; default: every size")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each row (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="training steps a turn; default: by size, 2 to 30")
    parser.add_argument("--nanogpt", type=Path, metavar="PATH", help="a checkout of nanoGPT, to measure beside it")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: %(default)s")
    parser.add_argument("--cpu_time", action="store_true", help="measure CPU time, on a machine that others use too")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.nanogpt is not None and not (options.nanogpt / "model.py").is_file():
        parser.error(f"--nanogpt is {options.nanogpt}, where there is no model.py; give a checkout of nanoGPT")
    return options


def main() -> None:
    options = parse_options()
    if options.worker is not None:
        work(ROWS[options.size[0]][options.worker], ALL_SIZES[options.size[0]], options)
        return
    sections = sections_before()
    for size_name in options.size or ALL_SIZES:
        sections[size_name] = report(size_name, measure(size_name, options), options)
        print(sections[size_name])
    RESULTS.parent.mkdir(exist_ok=True)
    in_order = [sections[name] for name in ALL_SIZES if name in sections]
    RESULTS.write_text("\n".join([HEADER, *in_order]), encoding="utf-8")
    print(f"Written to {RESULTS}")


if __name__ == "__main__":
    main()
