"""What making batches costs beside training on them: `python benchmarks/batching_cost.py`.

A million random sentence pairs lie tokenised on disk, as a run caches them. In each round a fresh stream plans an epoch
and makes its first batch; then it makes further batches, each followed by a training step on it (forward, backward,
clipping, AdamW) of the model of `training_speed.py`, in the same process. A batch costs its tensors and its part of the
plan; the figure is the median over rounds of that cost's share of a step's time within a round.
"""

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from training_speed import SIZES, Row, Size, train  # the script beside this one

from paperformer.training.data.batches.batch_stream import BatchStream
from paperformer.training.data.batches.pair_batches import BatchOptions, PairBatches
from paperformer.training.data.batches.token_budget import Batch
from paperformer.training.data.corpus import Corpus
from paperformer.training.data.token_store import TokenStore, TokenWriter
from paperformer.training.engine.devices.hardware import describe_hardware

RESULTS = Path(__file__).parent / "results" / "batching_cost.md"
MAX_LENGTH = 100


class Round(NamedTuple):
    """Seconds."""

    first_batch: float
    """From opening what is on disk to the tensors of the first batch; the plan of an epoch is in it."""

    batch: float
    step: float
    batches_per_epoch: int

    @property
    def share(self) -> float:
        return (self.batch + self.first_batch / self.batches_per_epoch) / self.step


def write_store(folder: Path, size: Size, pairs: int) -> None:
    """Random pairs with the lengths of `training_speed.make_batches`."""
    rng = np.random.default_rng(0)
    source = np.clip(np.rint(rng.lognormal(np.log(size.typical_length), 0.5, pairs)), 3, MAX_LENGTH)
    target = np.clip(np.rint(source * rng.uniform(0.8, 1.2, pairs)), 3, MAX_LENGTH)
    with TokenWriter(folder, 2, size.vocab_size) as writer:
        writer.write_lengths(np.stack((source, target), axis=1))
        writer.write_ids(rng.integers(4, size.vocab_size, int(source.sum() + target.sum()), dtype=np.uint16))
    (folder / "report.json").write_text(json.dumps({"sources": [{"kept": pairs}]}), "utf-8")


def open_batches(folder: Path, size: Size, seed: int) -> PairBatches:
    options = BatchOptions(
        max_length=MAX_LENGTH, truncate=False, tokens_per_batch=size.tokens_per_batch, seed=seed, pad_token_id=0
    )
    return PairBatches(Corpus(folder), TokenStore(folder), options, weights=[1.0])


class TimedBatches:
    """Batches without end; how long the last one took to make is noted."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def start(self, batches: PairBatches) -> None:
        self.stream = iter(BatchStream(batches.pools, batches.collate))

    def __iter__(self) -> Iterator[Batch]:
        while True:
            started = time.perf_counter()
            batch = next(self.stream)
            self.seconds = time.perf_counter() - started
            yield batch


def measure(size: Size, folder: Path, pairs: int, rounds: int, steps: int) -> list[Round]:
    """The first round warms up and is not counted."""
    write_store(folder, size, pairs)
    (plan,) = open_batches(folder, size, seed=0).pools(0, 0)
    timed, result = TimedBatches(), []
    training = train(Row("paperformer, float32"), size, timed)
    for number in range(rounds + 1):
        started = time.perf_counter()
        timed.start(open_batches(folder, size, seed=number))
        next(timed.stream)
        first_batch = time.perf_counter() - started
        batch, step = zip(*((timed.seconds, seconds) for _, seconds in islice(training, steps)), strict=True)
        result.append(Round(first_batch, statistics.mean(batch), statistics.mean(step), len(plan)))
        print(f"round {number}: {result[-1].share:.3%} of {1000 * result[-1].step:.0f} ms", file=sys.stderr)
    return result[1:]


def row(name: str, rounds: list[Round]) -> str:
    """One line of the table."""
    shares = sorted(one.share for one in rounds)
    low, _, high = statistics.quantiles(shares, n=4)
    first, batch, step = (
        statistics.median(getattr(one, name) for one in rounds) for name in ("first_batch", "batch", "step")
    )
    plan = 1e6 * first / rounds[0].batches_per_epoch
    return (
        f"| {name}: {SIZES[name]} | {first:.2f} s | {plan:.0f} µs | {1000 * batch:.2f} ms | {1000 * step:.0f} ms "
        f"| {statistics.median(shares):.2%} ({low:.2%} to {high:.2%}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=11, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=10, help="training steps a round (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    load = os.getloadavg()[0]
    rows = []
    for name, size in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(name, measure(size, Path(folder), options.pairs, options.rounds, options.steps)))
    versions = ", ".join(f"{name} {version(name)}" for name in ("paperformer", "torch", "numpy"))
    text = "\n".join(
        [
            "# What making batches costs",
            "",
            f"{options.pairs:,} random pairs, memory-mapped; {options.rounds} rounds of {options.steps} training steps "
            "in float32. First batch: from opening the files, with the plan of the epoch. Share of a step: a batch and "
            "its part of the plan, median over rounds with quartiles.",
            "",
            f"- Command: `{shlex.join(['python', 'benchmarks/batching_cost.py', *sys.argv[1:]])}`",
            f"- Date: {datetime.now(UTC):%Y-%m-%d}",
            f"- Hardware: {describe_hardware()}, {options.threads} threads (load average at the start: {load:.1f})",
            f"- Software: Python {sys.version.split()[0]}, {versions}",
            "",
            "| model and batches | first batch | plan, a batch | tensors, a batch | training step | share of a step |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
