"""How fast a test set is translated for scoring, beside a plain loop: `generate()` on 16 sentences at a time, in order.

The loop is measured with transformers' own beam search, which is what models of transformers have, and with ours, which
`generate()` of our models uses. All decode with the same beams and the same longest output, in the same number of
threads all in all, turn by turn; the translations are compared. Processes load the model in each round, which is
counted; so is tokenising, on both sides.
"""

import argparse
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoTokenizer
from transformers.generation import GenerationMixin

import paperformer
from paperformer.commands.loading import load
from paperformer.modeling.decoding.beam_search import BeamSearchMixin
from paperformer.training.engine.devices.hardware import describe_hardware
from paperformer.training.evaluation.decoding import generate, longest_sequence

RESULTS = Path(__file__).parent / "results" / "evaluation_speed.md"
BATCH = 16


def plain_loop(model_folder: str, sources: Sequence[str], num_beams: int) -> list[str]:
    """What a script does that is written in a minute."""
    model, tokenizer = load(model_folder, "translation")
    outputs: list[str] = []
    for start in range(0, len(sources), BATCH):
        inputs = tokenizer(list(sources[start : start + BATCH]), return_tensors="pt", padding=True)
        longest = min(2 * inputs.input_ids.shape[1] + 20, longest_sequence(model) - 1)
        ids = generate(
            model,
            input_ids=inputs.input_ids,
            attention_mask=inputs.attention_mask,
            num_beams=num_beams,
            length_penalty=1.0,
            do_sample=False,
            max_new_tokens=longest,
        )
        outputs += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return outputs


def searched_by_transformers(translate: Callable[[], list[str]]) -> list[str]:
    own = BeamSearchMixin._beam_search
    BeamSearchMixin._beam_search = GenerationMixin._beam_search
    try:
        return translate()
    finally:
        BeamSearchMixin._beam_search = own


def measure(options: argparse.Namespace) -> str:
    sources = Path(options.source).read_text("utf-8").splitlines()[: options.sentences]
    rows: list[str] = []
    for num_beams in (1, 5):
        plain = partial(plain_loop, options.model, sources, num_beams)
        ways: dict[str, Callable[[], list[str]]] = {"plain loop": partial(searched_by_transformers, plain)}
        if num_beams > 1:
            ways["plain loop, our beam search"] = plain
        ways |= {
            "paperformer": lambda beams=num_beams: paperformer.translate(options.model, sources, beams, 1.0),
            f"paperformer, {options.processes} processes": lambda beams=num_beams: paperformer.translate(
                options.model, sources, beams, 1.0, processes=options.processes
            ),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        outputs: dict[str, list[str]] = {}
        for round_number in range(options.rounds + 1):
            for name, translate in ways.items():
                started = time.perf_counter()
                outputs[name] = translate()
                if round_number:  # the first warms up
                    seconds[name].append(time.perf_counter() - started)
        base = statistics.median(seconds["plain loop"])
        for name, taken in seconds.items():
            median = statistics.median(taken)
            same = sum(one == other for one, other in zip(outputs[name], outputs["plain loop"], strict=True))
            rows.append(
                f"| {num_beams} | {name} | {median:.1f} ({min(taken):.1f} to {max(taken):.1f}) | {base / median:.2f} | "
                f"{len(sources) / median:,.0f} | {same:,} of {len(sources):,} |"
            )
            print(rows[-1], flush=True)
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder of a trained translation model")
    parser.add_argument("--source", required=True, help="file of sentences")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    load_before, tokenizer = os.getloadavg()[0], AutoTokenizer.from_pretrained(options.model, trust_remote_code=False)
    rows = measure(options)
    names = ("paperformer", "torch", "transformers")
    lines = [
        "# Speed of evaluation",
        "",
        (__doc__ or "").strip(),
        "",
        f"- Command: `python benchmarks/evaluation_speed.py {shlex.join(sys.argv[1:])}`",
        f"- Date: {datetime.now(UTC).date()}",
        f"- Hardware: {describe_hardware()}, {torch.get_num_threads()} threads (load before: {load_before:.1f})",
        f"- Software: Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in names)}",
        f"- Model: {Path(options.model).resolve().parent.name}, a vocabulary of {len(tokenizer):,}",
        "",
        "| beams | way | seconds: median (lowest to highest) | ratio | sentences a second | equal to the loop's |",
        "|---:|---|---:|---:|---:|---:|",
        rows,
    ]
    RESULTS.write_text("\n".join(lines) + "\n", "utf-8")
    print(RESULTS)


if __name__ == "__main__":
    main()
