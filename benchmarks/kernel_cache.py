"""How a run in bfloat16 grows on a CPU, by how many primitives oneDNN keeps.

The Multi30k recipe is trained for some steps in one thread, each time in a process of its own, which is watched from
outside: resident memory and processor time at each of its records. 1,024 is what oneDNN keeps by itself. Processor time
does not depend on who else uses the machine, save for what they take of its caches and its memory.
"""

import argparse
import json
import os
import platform
import shlex
import sys
import tempfile
import textwrap
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from paperformer.training.engine.devices.hardware import describe_hardware
from paperformer.training.engine.memory.kernel_cache import CAPACITY, SETTINGS

RESULTS = Path(__file__).parent / "results" / "kernel_cache.md"

Curve = dict[int, tuple[float, float]]
"""Step -> GB of memory, seconds of processor time since the process began."""


def watch(capacity: int, options: argparse.Namespace, folder: Path) -> Curve:
    """Trains until a step has been recorded, and then ends the process."""
    name = f"keep-{capacity}"
    data = ["--data.dataset", options.data, "--data.validation", "val", "--data.test", "test_2016_flickr"]
    command = [sys.executable, "-m", "paperformer.training.train_seq2seq", "--config", "multi30k-en-de", *data]
    command += ["--name", name, "--output_dir", str(folder), "--optimization.max_steps", str(10 * options.steps)]
    command += ["--optimization.mixed_precision", options.precision]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | dict.fromkeys(SETTINGS, str(capacity))
    metrics, curve = folder / name / "metrics.jsonl", Curve()
    with (folder / f"{name}.txt").open("wb") as log:
        process = psutil.Popen(command, env=environment, stdout=log, stderr=log)
        while max(curve, default=0) < options.steps:
            time.sleep(0.1)
            if process.poll() is not None:
                sys.exit((folder / f"{name}.txt").read_text("utf-8")[-2000:])
            lines = metrics.read_text("utf-8").split("\n")[:-1] if metrics.exists() else []
            step = json.loads(lines[-1])["step"] if lines else -1
            if step >= 0 and step not in curve:
                times = process.cpu_times()
                curve[step] = process.memory_info().rss / 1e9, times.user + times.system
        process.kill()
        process.wait()
    return curve


def report(curves: dict[int, Curve], options: argparse.Namespace, minutes: float) -> str:
    steps = sorted(set.intersection(*map(set, curves.values())))
    shown = [step for step in steps if step in (0, 20, 40) or step % options.shown_every == 0]
    first, last = steps[1], steps[-1]
    head = ["step", *(f"{capacity:,} kept" for capacity in curves)]
    rows = [[f"{step:,}", *(f"{curve[step][0]:.2f} GB" for curve in curves.values())] for step in shown]
    speeds = [1000 * (curve[last][1] - curve[first][1]) / (last - first) for curve in curves.values()]
    rows.append(["processor time a step", *(f"{speed:,.0f} ms" for speed in speeds)])
    intro = " ".join(__doc__.partition("\n\n")[2].split())
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])
    versions = ", ".join(f"{name} {version(name)}" for name in ("paperformer", "torch", "transformers"))
    return f"""# Memory of a run in {options.precision} on a CPU, by how many primitives oneDNN keeps

{textwrap.fill(intro, 120)}

{table}

- Training keeps {CAPACITY}, unless {" or ".join(SETTINGS)} says otherwise
- Processor time is the mean of steps {first} to {last}; the recipe's seed is 1
- Command: `{shlex.join(["python", "benchmarks/kernel_cache.py", *sys.argv[1:]])}`
- Date: {datetime.now(UTC):%Y-%m-%d}; {minutes:.0f} minutes
- Hardware: {describe_hardware()}
- Software: Python {platform.python_version()}, {versions}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder with Multi30k: train, val and test_2016_flickr, .en and .de")
    parser.add_argument("--capacities", type=int, nargs="+", default=[1024, CAPACITY], help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=300, help="of each run (default: %(default)s)")
    parser.add_argument("--shown_every", type=int, default=100, help="steps (default: %(default)s)")
    parser.add_argument("--precision", default="bf16", help="default: %(default)s")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernel-cache-") as folder:
        curves = {capacity: watch(capacity, options, Path(folder)) for capacity in options.capacities}
    text = report(curves, options, (time.monotonic() - start) / 60)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
