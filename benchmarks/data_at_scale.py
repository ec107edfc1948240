"""What it costs to bring a large corpus to batches: `python benchmarks/data_at_scale.py --pairs 1000000 10000000`.

Sentence pairs of about a hundred bytes are generated into two files, and go the way of a training run: read, cleaned
(with every check that is on by default), tokenised, cached, and put into the batches of one epoch, tensors and all.
Each size runs in a process of its own, whose resident memory is sampled all the while; caches are warm for the second
reading, from which the time to the first batch comes. Beside it, in turns, the tokenizers library encodes the same
sentences from a list in memory, in batches as large as ours and with nothing else to do.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "data_at_scale.md"
VOCAB_SIZE = 8000
TOKENS_PER_BATCH = 4096
CLAUSES = 200_000
ROUNDS = 5
COMPARED_PAIRS = 200_000


def generate(folder: Path, pairs: int) -> int:
    """Writes train.xx and train.yy; returns their bytes together.

    Clauses of five or so words, drawn by their frequencies in Shakespeare's plays, are joined by twos with a number
    between. The target's words are the source's with their letters permuted, in another order: no sense, but lengths,
    frequencies and spelling like a language's.
    """
    from paperformer.training.data.built_in.shakespeare import plays

    rng = np.random.default_rng(0)
    words = np.array(" ".join(plays().values()).split())
    permuted = str.maketrans("abcdefghijklmnoprstuvwy", "oepmtcvbulrhkaidnwsygfz")
    lengths = rng.integers(2, 8, size=CLAUSES)
    drawn = rng.choice(words, size=(CLAUSES, 8))
    clauses = [list(row[:length]) for row, length in zip(drawn, lengths, strict=True)]
    sources = [" ".join(clause) for clause in clauses]
    targets = [" ".join(reversed(clause)).translate(permuted) for clause in clauses]
    with (folder / "train.xx").open("w") as source, (folder / "train.yy").open("w") as target:
        for first in range(0, pairs, 100_000):
            numbers = range(first, min(first + 100_000, pairs))
            left, right = rng.integers(CLAUSES, size=(2, len(numbers)))
            chosen = list(zip(left, numbers, right, strict=True))
            source.writelines(f"{sources[i]} {n} {sources[j]}\n" for i, n, j in chosen)
            target.writelines(f"{targets[j]} {n} {targets[i]}\n" for i, n, j in chosen)
    return sum((folder / f"train.{side}").stat().st_size for side in ("xx", "yy"))


class MemoryMeter:
    """Samples this process's resident memory, in megabytes, from a thread."""

    def __init__(self) -> None:
        self.peak: dict[str, float] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            for name in ("VmRSS", "RssAnon"):
                self.peak[name] = max(self.peak.get(name, 0), int(fields[name].split()[0]) / 1024)
            time.sleep(0.02)

    @contextmanager
    def of(self, phase: str, into: dict[str, Any]) -> Iterator[None]:
        """Records a phase's seconds and the most memory that was resident in it."""
        self.peak = {}
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        time.sleep(0.05)
        into[phase] = {"seconds": seconds, "resident": self.peak["VmRSS"], "anonymous": self.peak["RssAnon"]}


def measure(folder: Path) -> dict[str, Any]:
    """The whole way of the files in a folder; run in a process of its own."""
    from paperformer.tokenization import train_tokenizer
    from paperformer.training.data.batches.batch_stream import BatchStream
    from paperformer.training.data.batches.pair_batches import BatchOptions, PairBatches
    from paperformer.training.data.corpus import Corpus, build_corpus
    from paperformer.training.data.readers.parallel_files import ParallelFiles
    from paperformer.training.data.readers.sources import Source
    from paperformer.training.data.text.bad_lines import BadLines
    from paperformer.training.data.tokenizing import tokenized_pairs
    from paperformer.training.recipe.cleaning import Cleaning

    reader = ParallelFiles(source=folder / "train.xx", target=folder / "train.yy")
    source = Source(path=str(folder / "train"))
    sample = [text for chunk in islice(reader.chunks(BadLines()), 20) for text in chunk.column(0).to_pylist()]
    sample += [text for chunk in islice(reader.chunks(BadLines()), 20) for text in chunk.column(1).to_pylist()]
    tokenizer = train_tokenizer(sample, VOCAB_SIZE, append_eos=True, show_progress=False)
    meter, result = MemoryMeter(), {}

    def corpus() -> Corpus:
        return build_corpus(folder / "cache", "train", [(source, reader)], Cleaning(), ("xx", "yy"))

    def stream(text: Corpus) -> BatchStream:
        store = tokenized_pairs(folder / "cache", text, (tokenizer, tokenizer))
        options = BatchOptions(
            max_length=128,
            truncate=False,
            tokens_per_batch=TOKENS_PER_BATCH,
            seed=0,
            pad_token_id=tokenizer.pad_token_id,
        )
        batches = PairBatches(text, store, options, weights=[1.0])
        result["pairs"], result["tokens"] = len(store), len(store.ids)
        return BatchStream(batches.pools, batches.collate)

    with meter.of("read and clean", result):
        text = corpus()
    with meter.of("tokenise", result):
        tokenized_pairs(folder / "cache", text, (tokenizer, tokenizer))
    with meter.of("one epoch of batches", result):
        batches = stream(text)
        positions = 0
        count = 0
        for batch in batches:
            if batches.state_dict()["epoch"] > 0:
                break
            positions += batch["input_ids"].numel() + batch["labels"].numel()
            count += 1
    result["batches"], result["padding"] = count, 1 - result["tokens"] / positions
    with meter.of("first batch, warm", result):
        next(iter(stream(corpus())))
    result["encoding"] = compare_encoding(tokenizer, text, folder)
    return result


def compare_encoding(tokenizer: Any, text: Any, folder: Path) -> dict[str, float]:
    """Pairs a second of our tokenising, which reads and writes files, and of the library's encoding of a list."""
    from paperformer.training.data.text.chunks import ROWS_A_CHUNK
    from paperformer.training.data.token_store import TokenWriter
    from paperformer.training.data.tokenizing import batch_encoder, encoded_pairs, write_pairs

    chunks = list(islice(text.chunks(), COMPARED_PAIRS // ROWS_A_CHUNK))
    lists = [(chunk.column(0).to_pylist(), chunk.column(1).to_pylist()) for chunk in chunks]
    encoders = (batch_encoder(tokenizer), batch_encoder(tokenizer))
    backend = tokenizer.backend_tokenizer

    def ours() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as target, TokenWriter(Path(target), 2, len(tokenizer)) as writer:
            write_pairs(encoded_pairs(islice(text.chunks(), len(chunks)), encoders), writer)

    def library(encode: Callable[[list[str]], Any]) -> Callable[[], None]:
        def run() -> None:
            for sides in lists:
                for side in sides:
                    encode(side)

        return run

    contestants = {
        "ours": ours,
        "encode_batch": library(backend.encode_batch),
        "encode_batch_fast": library(backend.encode_batch_fast),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(ROUNDS):
        for name, run in list(contestants.items())[:: 1 if number % 2 else -1]:
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    pairs = sum(map(len, chunks))
    speeds = {name: pairs / statistics.median(times) for name, times in seconds.items()}
    for name in ("encode_batch", "encode_batch_fast"):
        ratios = [theirs / own for theirs, own in zip(seconds[name], seconds["ours"], strict=True)]
        speeds[f"ours / {name}"] = statistics.median(ratios)
    return speeds


def report(results: list[dict[str, Any]]) -> str:
    """The figures as Markdown."""
    from paperformer.training.engine.devices.hardware import describe_hardware

    phases = ("read and clean", "tokenise", "one epoch of batches", "first batch, warm")
    lines = [
        "# A large corpus, from files to batches",
        "",
        f"`python benchmarks/{Path(__file__).name} {shlex.join(sys.argv[1:])}`, {datetime.now(UTC):%Y-%m-%d}, "
        f"{describe_hardware()}, Python {sys.version.split()[0]}, tokenizers {version('tokenizers')}, "
        f"pyarrow {version('pyarrow')}, seed 0.",
        "",
        f"Generated pairs; byte-level BPE of {VOCAB_SIZE:,}; batches of {TOKENS_PER_BATCH:,} tokens. Resident memory "
        "is what the system counts, mapped files included; anonymous is what the process itself holds. The first batch "
        "of a warm start comes from a second plan of an epoch, beside the first, which is still in memory.",
        "",
        "| | "
        + " | ".join(f"{result['pairs']:,} pairs ({result['bytes'] / 1e6:,.0f} MB)" for result in results)
        + " |",
        "|---|" + "---|" * len(results),
    ]
    for phase in phases:
        cells = (
            f"{r[phase]['seconds']:.1f} s, {r[phase]['resident']:,.0f} MB ({r[phase]['anonymous']:,.0f} anonymous)"
            for r in results
        )
        lines.append(f"| {phase} | " + " | ".join(cells) + " |")
    total = [sum(result[phase]["seconds"] for phase in phases[:3]) for result in results]
    micro = [1e6 * seconds / result["pairs"] for seconds, result in zip(total, results, strict=True)]
    lines += [
        "| together | " + " | ".join(f"{t:.0f} s, {m:.1f} µs a pair" for t, m in zip(total, micro, strict=True)) + " |",
        "| padding | "
        + " | ".join(f"{result['padding']:.2%} of {result['batches']:,} batches" for result in results)
        + " |",
    ]
    for name in ("ours", "encode_batch", "encode_batch_fast"):
        label = "our tokenising, files to files" if name == "ours" else f"`{name}`, from memory"
        lines.append(f"| {label} | " + " | ".join(f"{r['encoding'][name]:,.0f} pairs/s" for r in results) + " |")
    for name in ("ours / encode_batch", "ours / encode_batch_fast"):
        lines.append(f"| {name} | " + " | ".join(f"{r['encoding'][name]:.2f}" for r in results) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 10_000_000], help="sizes to measure")
    parser.add_argument("--folder", type=Path, default=None, help="where to put a few gigabytes for the time being")
    parser.add_argument("--measure", type=Path, default=None, help=argparse.SUPPRESS)  # the process of one size
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    results = []
    for pairs in arguments.pairs:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
            size = generate(Path(name), pairs)
            print(f"{pairs:,} pairs, {size / 1e6:,.0f} MB", file=sys.stderr)
            command = [sys.executable, __file__, "--measure", name]
            environment = os.environ | {"TOKENIZERS_PARALLELISM": "true"}
            finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
            results.append(json.loads(finished.stdout.splitlines()[-1]) | {"bytes": size})
            print(json.dumps(results[-1], indent=1), file=sys.stderr)
    text = report(results)
    RESULTS.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
