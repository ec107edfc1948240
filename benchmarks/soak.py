"""Kills a training run again and again at random moments, and compares what comes out with a run that was left alone.

The run (a small language model of Shakespeare, in bfloat16, with dropout, a moving average and a worker process for
the data) saves a checkpoint every few steps, so that many kills fall into the middle of a save. Each kill is SIGKILL,
which no program can notice; then the same command goes on with `--resume`. In the end the two runs' weights, optimizer
states, random states, metrics and samples are to be equal to the last bit.
"""

import argparse
import json
import os
import platform
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from paperformer.training.engine.devices.hardware import describe_hardware

RESULTS = Path(__file__).parent / "results" / "soak.md"

BY_THE_CLOCK = {"seconds", "tokens_per_second", "memory", "utilisation", "joules"}


def command(folder: Path, name: str, steps: int, *flags: str) -> list[str]:
    options = {
        "name": name,
        "output_dir": folder,
        "data.dataset": "built-in:shakespeare",
        "data.context_length": 64,
        "data.workers": 1,
        "tokenizer.vocab_size": 1000,
        "model.hidden_size": 64,
        "model.intermediate_size": 256,
        "model.num_attention_heads": 4,
        "model.num_hidden_layers": 2,
        "model.dropout": 0.2,
        "optimization.max_steps": steps,
        "optimization.tokens_per_batch": 1024,
        "optimization.mixed_precision": "bf16",
        "optimization.ema_decay": 0.99,
        "optimization.warmup_steps": 50,
        "checkpoints.every_steps": 10,
        "evaluation.every_steps": steps // 2,
        "evaluation.validation_samples": 1,
    }
    words = [word for option, value in options.items() for word in (f"--{option}", str(value))]
    return [sys.executable, "-m", "paperformer.training.train_lm", *words, *flags]


def train(arguments: list[str], log: Path, kill_when: Callable[[float], bool] = lambda seconds: False) -> float | None:
    """Runs a command in a session of its own; returns after how many seconds it was killed, or None if it finished."""
    start = time.monotonic()
    with log.open("ab") as file:
        process = subprocess.Popen(arguments, stdout=file, stderr=file, start_new_session=True)
    while process.poll() is None:
        time.sleep(0.005)
        if kill_when(time.monotonic() - start):
            process.kill()  # the run alone; its worker finds itself without it
            process.wait()
            return time.monotonic() - start
    assert process.returncode == 0, log.read_text(encoding="utf-8")[-2000:]
    return None


def random_moment(run: Path, steps: int, kills: int, rng: random.Random) -> Callable[[float], bool]:
    """A moment after some more steps, on average as many as are left for each kill; one of ten is during the start."""
    if rng.random() < 0.1:
        seconds = rng.uniform(0, 10)
        return lambda elapsed: elapsed > seconds
    before = newest_step(run)
    goal, delay = before + rng.uniform(0, 2) * (steps - before) / (kills + 1), rng.uniform(0, 0.5)
    reached: list[float] = []

    def is_now(elapsed: float) -> bool:
        if not reached and newest_step(run) > min(goal, steps - 1):
            reached.append(elapsed)
        return bool(reached) and elapsed > reached[0] + delay

    return is_now


def differences(one: Path, other: Path) -> list[str]:
    """What two finished runs do not have in common, though it does not depend on the clock."""
    found = [name for name in ("metrics.jsonl", "samples.jsonl") if records(one / name) != records(other / name)]
    weights = [load_file(run / "model" / "model.safetensors") for run in (one, other)]
    found += [f"model: {name}" for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])]
    checkpoints = [sorted(path.name for path in (run / "checkpoints").iterdir()) for run in (one, other)]
    if checkpoints[0] != checkpoints[1]:
        return [*found, f"checkpoints: {checkpoints[0]} and {checkpoints[1]}"]
    for step in checkpoints[0]:
        for file in ("model.safetensors", "ema.safetensors", "optimizer.pt", "random.pt"):
            states = [flat(read(run / "checkpoints" / step / file)) for run in (one, other)]
            if states[0].keys() != states[1].keys():
                found.append(f"{step}/{file}: other names")
            found += [f"{step}/{file}: {name}" for name in states[0] if not same(states[0][name], states[1].get(name))]
    return found


def records(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    of_starts = ("hardware", "energy")
    return [
        {name: value for name, value in line.items() if name not in BY_THE_CLOCK}
        for line in lines
        if not any(name in line for name in of_starts)
    ]


def read(path: Path) -> Any:
    return load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)


def flat(state: Any, prefix: str = "") -> dict[str, Any]:
    items = state.items() if isinstance(state, dict) else enumerate(state)
    result: dict[str, Any] = {}
    for name, value in items:
        is_nested = isinstance(value, dict | list | tuple)
        result |= flat(value, f"{prefix}{name}/") if is_nested else {f"{prefix}{name}": value}
    return result


def same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def report(options: argparse.Namespace, figures: dict[str, Any]) -> str:
    line = shlex.join(["python", "benchmarks/soak.py", *sys.argv[1:]])
    versions = ", ".join(f"{name} {version(name)}" for name in ("paperformer", "torch", "transformers"))
    found: list[str] = figures["differences"]
    verdict = "no difference to the last bit" if not found else f"{len(found)} differences, first {found[:5]}"
    facts = "\n".join(
        textwrap.fill(fact, 120, initial_indent="- ", subsequent_indent="  ")
        for fact in (
            f"Kills: {figures['kills']}, of which {figures['in_save']} left a half-written checkpoint behind, and "
            f"{figures['early']} came before the next checkpoint",
            f"Steps: {options.steps}; at the kills the newest checkpoint was of step {figures['steps']}",
            f"Time from start to kill: {min(figures['lived']):.1f} to {max(figures['lived']):.1f} s, median "
            f"{statistics.median(figures['lived']):.1f} s; the run that was left alone took {figures['alone']:.0f} s",
        )
    )
    return f"""# Soak test: a run that is killed {options.kills} times

{__doc__.partition(chr(10) * 2)[2].strip()}

- Result: **{verdict}**
{facts}
- Command: `{line}`
- Date: {datetime.now(UTC):%Y-%m-%d}
- Hardware: {describe_hardware()}
- Software: Python {platform.python_version()}, {versions}
"""


def newest_step(run: Path) -> int:
    steps = [int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*[0-9]")]
    return max(steps, default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="how often (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1500, help="steps of the run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: %(default)s)")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    log = folder / "log.txt"
    print(f"logs and runs are in {folder}", file=sys.stderr)
    start = time.monotonic()
    train(command(folder, "alone", options.steps), log)
    alone = time.monotonic() - start
    print(f"left alone: {alone:.0f} s", file=sys.stderr)

    killed = folder / "killed"
    lived: list[float] = []
    steps: list[int] = []
    in_save = early = 0
    while len(lived) < options.kills:
        flags = ["--resume"] if (killed / "recipe.yaml").exists() else []
        before = newest_step(killed)
        moment = random_moment(killed, options.steps, options.kills - len(lived), rng)
        seconds = train(command(folder, "killed", options.steps, *flags), log, moment)
        if seconds is None:
            sys.exit(f"the run finished after {len(lived)} kills; give more --steps")
        in_save += any((killed / "checkpoints").glob("*.partial"))
        early += newest_step(killed) == before
        lived.append(seconds)
        steps.append(newest_step(killed))
        print(f"kill {len(lived)} after {seconds:.1f} s, at checkpoint {steps[-1]}", file=sys.stderr)
    train(command(folder, "killed", options.steps, "--resume"), log)

    figures = {
        "differences": differences(folder / "alone", killed),
        "kills": len(lived),
        "in_save": in_save,
        "early": early,
        "steps": ", ".join(map(str, steps)),
        "lived": lived,
        "alone": alone,
    }
    text = report(options, figures)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)
    if figures["differences"]:
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
