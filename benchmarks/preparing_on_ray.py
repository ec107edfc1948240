"""What preparing a corpus by shards costs, beside one process: `python benchmarks/preparing_on_ray.py --pairs 200000`.

The generated pairs of `data_at_scale.py` are read, cleaned and tokenised by one process, by one process in shards, then
on a Ray cluster of this machine by one worker and by two, each time in a process of its own with an empty cache; what
comes of it is compared.
Seconds are of processors, not of the clock: they say how the work is divided on a machine that others use as well.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from data_at_scale import VOCAB_SIZE, generate

RESULTS = Path(__file__).parent / "results" / "preparing_on_ray.md"
SHARD_LINES = 10_000
HERE = -1
"""As a number of workers: this process does the shards, without Ray."""


def count_shard_seconds(make: Callable[[], Callable[[Any], int]]) -> Callable[[Any], float]:
    """Does shards, and says how many seconds of a processor each took."""
    do = make()

    def work(shard: Any) -> float:
        started = time.process_time()
        do(shard)
        return time.process_time() - started

    return work


def cluster_seconds() -> float:
    """Seconds of processors that all processes of the cluster have had."""
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        found += times.user + times.system + times.children_user + times.children_system
    return found


def measure(folder: Path, workers: int) -> dict[str, Any]:
    """Text and tokens of the files in a folder; not in shards if there are no workers."""
    from paperformer.bulk.on_ray import each_on_ray
    from paperformer.bulk.preparing import ShardedPreparation, do_here
    from paperformer.tokenization import train_tokenizer
    from paperformer.training.data.corpus import build_corpus
    from paperformer.training.data.readers.parallel_files import ParallelFiles
    from paperformer.training.data.readers.sources import Source
    from paperformer.training.data.text.bad_lines import BadLines
    from paperformer.training.data.tokenizing import tokenized_pairs
    from paperformer.training.recipe.cleaning import Cleaning

    reader = ParallelFiles(source=folder / "train.xx", target=folder / "train.yy")
    sample = [text for chunk in islice(reader.chunks(BadLines()), 3) for text in chunk.column(0).to_pylist()]
    tokenizer = train_tokenizer(sample, VOCAB_SIZE, append_eos=True, show_progress=False)
    result: dict[str, Any] = {"workers": workers}
    in_shards = 0.0

    def do(make: Callable[[], Callable[[Any], int]], shards: Sequence[Any]) -> Iterator[tuple[Any, int]]:
        nonlocal in_shards
        timed = partial(count_shard_seconds, make)
        done = do_here(timed, shards) if workers == HERE else each_on_ray(timed, shards, workers, stays=True)
        for shard, seconds in done:
            in_shards += seconds
            yield shard, 0

    division = ShardedPreparation(do, SHARD_LINES) if workers else None

    def phase(name: str, work: Callable[[], Any]) -> Any:
        nonlocal in_shards
        in_shards = 0.0
        started, before, clock = time.process_time(), cluster_seconds(), time.perf_counter()
        made = work()
        result[name] = {
            "here": time.process_time() - started - (in_shards if workers == HERE else 0),
            "in shards": in_shards,
            "cluster": cluster_seconds() - before,
            "clock": time.perf_counter() - clock,
        }
        return made

    if workers > 0:
        phase("start", lambda: list(each_on_ray(lambda: abs, [0], workers, stays=True)))
    source = Source(path=str(folder / "train"))
    text = phase(
        "text",
        lambda: build_corpus(
            folder / "cache",
            "train",
            [(source, reader)],
            Cleaning(duplicates="normalized"),
            ("xx", "yy"),
            write=division and division.write_text,
        ),
    )
    tokenizers = (tokenizer, tokenizer)
    store = phase(
        "tokens", lambda: tokenized_pairs(folder / "cache", text, tokenizers, encode=division and division.encode)
    )
    result["pairs"], result["resident"] = len(store), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result["files"] = {
        f"{made.name}/{path.name}": hash_of(path) for made in (text.folder, store.folder) for path in made.iterdir()
    }
    return result


def hash_of(path: Path) -> str:
    """Of a file's content."""
    from paperformer.training.data.cache import content_hashes

    return content_hashes([path])[0]


def report(results: list[dict[str, Any]], size: int) -> str:
    """The figures as Markdown."""
    from paperformer.training.engine.devices.hardware import describe_hardware

    assert all(result["files"] == results[0]["files"] for result in results), "the caches differ"
    pairs = results[0]["pairs"]
    lines = [
        "# Preparing a corpus on Ray",
        "",
        f"`python benchmarks/{Path(__file__).name} --pairs {pairs}`, {datetime.now(UTC):%Y-%m-%d}, "
        f"{describe_hardware()}, load average {os.getloadavg()[2]:.1f}, Ray {version('ray')}, "
        f"tokenizers {version('tokenizers')}.",
        "",
        f"{pairs:,} generated pairs ({size / 1e6:,.0f} MB), duplicates left out, byte-level BPE of {VOCAB_SIZE:,}, "
        f"shards of {SHARD_LINES:,} lines. The files that were made are the same to the byte. Seconds are of "
        "processors; those of shards are without the imports of each worker.",
        "",
        "| | start | text: the command | text: shards | tokens: the command | tokens: shards | most memory of the "
        "command |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        start = result.get("start")
        cells = [f"{start['here'] + start['cluster']:.0f} s" if start else ""]
        for name in ("text", "tokens"):
            figures = result[name]
            cells.append(f"{figures['here']:.1f} s")
            cells.append(f"{figures['in shards']:.1f} s" if result["workers"] else "")
        known = {0: "one process", HERE: "one process, in shards"}
        name = known.get(result["workers"], f"{result['workers']} on Ray")
        lines.append(f"| {name} | {' | '.join(cells)} | {result['resident']:,.0f} MB |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200_000, help="how many to generate")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2], help="how many of them on Ray, one after another"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where to put the corpus for the time being")
    parser.add_argument("--measure", type=Path, default=None, help=argparse.SUPPRESS)  # the process of one row
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.workers[0])))
        return
    results = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        size = generate(Path(name), arguments.pairs)
        for workers in (0, HERE, *arguments.workers):
            command = [sys.executable, __file__, "--measure", name, "--workers", str(workers)]
            environment = os.environ | {"TOKENIZERS_PARALLELISM": "true"}
            finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
            results.append(json.loads(finished.stdout.splitlines()[-1]))
            print(json.dumps(results[-1]), file=sys.stderr)
            shutil.rmtree(Path(name) / "cache")
    text = report(results, size)
    RESULTS.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
