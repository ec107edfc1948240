"""TinyShakespeare by characters: what losses nanoGPT's recipe for a CPU and ours reach, over the time that they take.

nanoGPT's model, optimizer, schedule and random blocks are its own, from a checkout (`--nanogpt`). Its recipe is that of
its README: 4 layers, 128 wide, 12 blocks of 64, 2,000 updates. Ours are runs of the product. Both validate on all of
the last tenth of the text: `blocks` in windows of 64 that do not overlap, which is what nanoGPT estimates from random
ones; `own` in those of each model's own context, where ours go on by half of it. Only training counts as time,
not validation.
"""

import argparse
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nanogpt import load_nanogpt

from paperformer import evaluate_text
from paperformer.training.engine.devices.hardware import describe_hardware

RESULTS = Path(__file__).parent / "results" / "time_to_loss.md"
BLOCK, BATCH, STEPS = 64, 12, 2000
Curve = list[tuple[int, float, float]]
"""Step, seconds of training, validation loss in nats a character."""


def train_nanogpt(checkout: Path, train: torch.Tensor, held_out: torch.Tensor, every: int) -> Curve:
    """Its recipe: train.py with `config/train_shakespeare_char.py` and the options of its README for a CPU."""
    module = load_nanogpt(checkout)
    torch.manual_seed(1337)
    size = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": BLOCK, "bias": False, "dropout": 0.0}
    model: Any = module.GPT(module.GPTConfig(vocab_size=int(train.max()) + 1, **size))
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    curve: Curve = []
    seconds = 0.0
    for step in range(STEPS + 1):
        if step % every == 0:
            curve.append((step, seconds, block_loss(model, held_out)))
            print(f"nanoGPT, step {step}: {curve[-1][2]:.4f} after {seconds:.1f} s", flush=True)
        if step == STEPS:
            break
        started = time.perf_counter()
        # Warm-up of 100 steps, then a cosine down to a tenth.
        decay = 0.5 * (1 + math.cos(math.pi * (step - 100) / (STEPS - 100)))
        rate = 1e-3 * (step + 1) / 101 if step < 100 else 1e-4 + decay * 9e-4
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(train) - BLOCK, (BATCH,))
        inputs = torch.stack([train[start : start + BLOCK] for start in starts])
        targets = torch.stack([train[start + 1 : start + 1 + BLOCK] for start in starts])
        _, loss = model(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds += time.perf_counter() - started
    return curve


@torch.no_grad()
def block_loss(model: Any, held_out: torch.Tensor) -> float:
    """Mean over windows that follow one another."""
    model.eval()
    count = (len(held_out) - 1) // BLOCK
    inputs = held_out[: count * BLOCK].view(count, BLOCK)
    targets = held_out[1 : count * BLOCK + 1].view(count, BLOCK)
    losses = [
        model(inputs[i : i + 128], targets[i : i + 128])[1].item() * len(inputs[i : i + 128])
        for i in range(0, count, 128)
    ]
    model.train()
    return sum(losses) / count


def train_ours(recipe: str, data: Path, folder: Path, every: int) -> Curve:
    """A run of the product."""
    command = [sys.executable, "-m", "paperformer.training.train_lm", "--config", recipe, "--output_dir", str(folder)]
    command += ["--overwrite", "--data.dataset", str(data), "--evaluation.every_steps", str(every)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    lines = (folder / recipe / "metrics.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    seconds = {record["step"]: record["seconds"] for record in records if "tokens_per_second" in record}
    curve = [
        (record["step"], float(np.interp(record["step"], sorted(seconds), sorted(seconds.values()))), loss)
        for record in records
        if (loss := record.get("validation", {}).get("loss")) is not None
    ]
    print(f"{recipe}: {curve[-1][2]:.4f} after {curve[-1][1]:.1f} s", flush=True)
    return curve


def seconds_to(curve: Curve, loss: float) -> float:
    """When a curve first reaches a loss, straight lines between its points; nan if never."""
    for (_, early, above), (_, late, below) in pairwise(curve):
        if below <= loss:
            return early + (late - early) * (above - loss) / (above - below) if above > loss else early
    return math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nanogpt", type=Path, required=True, help="checkout of its repository")
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt and val.txt")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    texts = [(options.data / f"{name}.txt").read_text("utf-8") for name in ("train", "val")]
    places = {character: place for place, character in enumerate(sorted(set("".join(texts))))}
    train, held_out = (torch.tensor([places[character] for character in text]) for text in texts)
    recipes = {"same architecture and updates": ("tinyshakespeare-nanogpt", 500), "ours": ("tinyshakespeare", 50)}
    seconds: dict[str, list[float]] = {name: [] for name in ("nanoGPT", *recipes)}
    rows, details = [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for _ in range(options.rounds):
            nano = train_nanogpt(options.nanogpt, train, held_out, 250)
            seconds["nanoGPT"].append(nano[-1][1])
            curves = {}
            for name, (recipe, every) in recipes.items():
                curves[name] = train_ours(recipe, options.data, folder, every)
                seconds[name].append(curves[name][-1][1])
        for name, curve in curves.items():
            model = folder / recipes[name][0] / "model"
            (blocks, *_) = evaluate_text(
                model, options.data / "val.txt", context_length=BLOCK + 1, stride=BLOCK, end_marks=False
            )
            rows.append((name, seconds[name], blocks.value, curve[-1][2], seconds_to(curve, nano[-1][2])))
            details.append(f"- {name}: {', '.join(f'{step} ({at:.0f} s): {loss:.3f}' for step, at, loss in curve)}")
    rows.insert(0, ("nanoGPT", seconds["nanoGPT"], nano[-1][2], nano[-1][2], nano[-1][1]))
    details.insert(0, f"- nanoGPT: {', '.join(f'{step} ({at:.0f} s): {loss:.3f}' for step, at, loss in nano)}")
    names = ("paperformer", "torch", "transformers")
    lines = [
        "# Loss over time",
        "",
        (__doc__ or "").strip(),
        "",
        f"- Command: `python benchmarks/time_to_loss.py {shlex.join(sys.argv[1:])}`",
        f"- Date: {datetime.now(UTC).date()}",
        f"- Hardware: {describe_hardware()}, {torch.get_num_threads()} threads (load before: {load:.1f})",
        f"- Software: Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in names)}",
        "",
        "| | seconds of training: median (all) | loss, `blocks` | loss, `own` | seconds to nanoGPT's last loss |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, taken, of_blocks, own, reached in rows:
        time_taken = f"{statistics.median(taken):.0f} ({', '.join(f'{value:.0f}' for value in taken)})"
        lines.append(f"| {name} | {time_taken} | {of_blocks:.3f} | {own:.3f} | {reached:.0f} |")
    lines += ["", "Validation losses by step, and seconds:", "", *details]
    RESULTS.write_text("\n".join(lines) + "\n", "utf-8")
    print(RESULTS)


if __name__ == "__main__":
    main()
