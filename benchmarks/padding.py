"""How much of batches is padding: `python benchmarks/padding.py Multi30k=multi30k/train Tatoeba=tatoeba/train.tsv`.

The pairs of each corpus are encoded with a byte-level BPE vocabulary of their own, joint for both sides, and put into
batches of one epoch in two ways: 64 pairs at a time in random order, as a plain data loader does it, and by the
package's token budget. Padding is the share of positions, of both sides together, that hold no token.
"""

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paperformer.tokenization import train_tokenizer
from paperformer.training.data.batches.token_budget import token_budget_batches
from paperformer.training.data.readers.sources import Source, pair_reader
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.tokenizing import batch_encoder
from paperformer.training.engine.devices.hardware import describe_hardware

RESULTS = Path(__file__).parent / "results" / "padding.md"
PLAIN_BATCH = 64
SEEDS = range(5)


@dataclass(frozen=True)
class Measured:
    """Medians over the seeds."""

    padding: float
    batches: float
    most_positions: float
    """Positions of the largest batch: what memory must hold."""

    seconds: float
    """Time to plan an epoch."""

    def __str__(self) -> str:
        return (
            f"{self.padding:.2%} | {self.batches:,.0f} | {self.most_positions:,.0f} | {1000 * self.seconds:,.0f} ms |"
        )


def encoded_lengths(path: str, languages: list[str], vocab_size: int) -> NDArray[np.int64]:
    """Tokens of both sides of each pair, end marks included, (N, 2)."""
    reader = pair_reader(Source(path=path), *languages)

    def texts() -> Iterator[str]:
        for chunk in reader.chunks(BadLines()):
            for side in chunk.columns:
                yield from side.to_pylist()

    encode = batch_encoder(train_tokenizer(texts(), vocab_size, append_eos=True))
    chunks = [
        [list(map(len, encode(side.to_pylist()))) for side in chunk.columns] for chunk in reader.chunks(BadLines())
    ]
    return np.concatenate(chunks, axis=1).T


def plain_batches(lengths: NDArray[np.int64], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    order = rng.permutation(len(lengths))
    return [order[first : first + PLAIN_BATCH] for first in range(0, len(order), PLAIN_BATCH)]


def measure(lengths: NDArray[np.int64], tokens_per_batch: int | None) -> Measured:
    """Batches by a token budget, or plain ones."""
    rounds = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        started = time.perf_counter()
        if tokens_per_batch is None:
            batches = plain_batches(lengths, rng)
        else:
            batches = token_budget_batches(lengths, tokens_per_batch, rng)
        seconds = time.perf_counter() - started
        positions = [len(batch) * int(lengths[batch].max(axis=0).sum()) for batch in batches]
        rounds.append((1 - lengths.sum() / sum(positions), len(batches), max(positions), seconds))
    return Measured(*(statistics.median(figures) for figures in zip(*rounds, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", metavar="NAME=PATH", help="what to measure; paths as in a recipe")
    parser.add_argument("--languages", nargs=2, default=["en", "de"], help="default: %(default)s")
    parser.add_argument(
        "--vocab-size", type=int, default=8000, help="of each corpus's tokenizer (default: %(default)s)"
    )
    parser.add_argument(
        "--tokens-per-batch", type=int, nargs="+", default=[512, 2048, 4096], help="budgets (default: %(default)s)"
    )
    options = parser.parse_args()
    lines = [
        "# Padding",
        "",
        "The share of positions of an epoch's batches, of both sides together, that are padding. Medians over "
        f"the seeds {SEEDS[0]} to {SEEDS[-1]}.",
        "",
        f"- Command: `{shlex.join(['python', 'benchmarks/padding.py', *sys.argv[1:]])}`",
        f"- Date: {datetime.now(UTC):%Y-%m-%d}",
        f"- Hardware: {describe_hardware()}",
        f"- Software: Python {sys.version.split()[0]}, numpy {version('numpy')}, tokenizers {version('tokenizers')}",
    ]
    for corpus in options.corpora:
        name, _, path = corpus.partition("=")
        lengths = encoded_lengths(path, options.languages, options.vocab_size)
        source, target = lengths.mean(axis=0)
        lines += [
            "",
            f"## {name}",
            "",
            f"{len(lengths):,} pairs, {source:.1f} and {target:.1f} tokens on average, "
            f"byte-level BPE of {options.vocab_size:,}.",
            "",
            "| | padding | batches | positions of the largest | time to plan |",
            "|---|---|---|---|---|",
            f"| {PLAIN_BATCH} pairs, shuffled | {measure(lengths, None)}",
            *(
                f"| at most {budget:,} tokens a side | {measure(lengths, budget)}"
                for budget in options.tokens_per_batch
            ),
        ]
    text = "\n".join(lines) + "\n"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
