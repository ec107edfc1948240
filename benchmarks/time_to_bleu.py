"""Multi30k en-de: the BLEU that our recipe and transformers' Marian reach, over the time that they train.

Both train on the pairs that our cleaning leaves, with the same tokenizer, size, dropout and label smoothing, on one
thread unless `--threads` says otherwise, each for about as long: ours takes `--steps` of its recipe, without R-Drop,
which pays in longer trainings only, and the peer trains for `--minutes`. The peer is a loop after
`run_translation_no_trainer.py` of transformers: `MarianMTModel`, a `DataLoader` that shuffles and pads, AdamW, a linear
schedule that ends with its time, with label smoothing as its Trainer has it; it runs once for each of `--peer_rates`.
BLEU is sacreBLEU's, of greedy translations of the validation split. Only training counts as time, neither opening data
nor validating.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorForSeq2Seq, MarianConfig, MarianMTModel, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import LabelSmoother

from paperformer.training.data.tokenizers import padded_size
from paperformer.training.engine.devices.hardware import describe_hardware
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.tasks.translation import TRANSLATION

RESULTS = Path(__file__).parent / "results" / "time_to_bleu.md"
RECIPE = "multi30k-en-de"
LEVELS = (5, 10, 15, 20, 25, 30, 35)
BATCH = 64
WARM_UP = 0.1
"""Share of the peer's time."""


@dataclass(frozen=True)
class Point:
    """One validation."""

    step: int
    seconds: float
    """Of training, until then."""

    bleu: float


Curve = list[Point]


def train_ours(arguments: list[str], folder: Path) -> Curve:
    """A run of the product."""
    command = [sys.executable, "-m", "paperformer.training.train_seq2seq", *arguments]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    lines = (folder / RECIPE / "metrics.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [
        Point(record["step"], record["seconds"], bleu)
        for record in records
        if (bleu := record.get("validation", {}).get("bleu")) is not None
    ]


class Peer:
    """Marian of the recipe's size, on its data."""

    def __init__(self, recipe: Recipe[Any], tokenizer: PreTrainedTokenizerBase, rate: float, seconds: float) -> None:
        torch.manual_seed(recipe.run.seed)
        splits, size = TRANSLATION.open_splits(recipe), recipe.model
        self.tokenizer, self.rate, self.budget = tokenizer, rate, seconds
        self.validation = [(row["source"], row["target"]) for row in splits.validation.dataset]
        encoded = [
            tokenizer(row["source"], text_target=row["target"], max_length=recipe.data.max_length, truncation=True)
            for row in splits.train.dataset
        ]
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=padded_size(tokenizer, 8),
                d_model=size["hidden_size"],
                encoder_layers=size["encoder_layers"],
                decoder_layers=size["decoder_layers"],
                encoder_attention_heads=size["num_attention_heads"],
                decoder_attention_heads=size["num_attention_heads"],
                encoder_ffn_dim=size["intermediate_size"],
                decoder_ffn_dim=size["intermediate_size"],
                activation_function="relu",
                dropout=size["dropout"],
                scale_embedding=True,
                max_position_embeddings=512,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
                decoder_start_token_id=tokenizer.bos_token_id,
                forced_eos_token_id=None,
            )
        )
        self.smoother = LabelSmoother(size["label_smoothing"])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, weight_decay=0.0)
        collate = DataCollatorForSeq2Seq(tokenizer, model=self.model, label_pad_token_id=-100)
        self.loader = DataLoader(encoded, shuffle=True, collate_fn=collate, batch_size=BATCH)

    def train(self, validations: int) -> Curve:
        """Until its time is over."""
        curve: Curve = []
        seconds, step, batches = 0.0, 0, self._batches()
        while seconds < self.budget:
            started = time.perf_counter()
            passed = seconds / self.budget
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate * min(passed / WARM_UP, (1 - passed) / (1 - WARM_UP))
            batch = next(batches)
            loss = self.smoother(self.model(**batch), batch["labels"])
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            step += 1
            seconds += time.perf_counter() - started
            if seconds >= self.budget * (len(curve) + 1) / validations:
                curve.append(Point(step, seconds, self._score()))
                print(f"peer at {self.rate}, step {step}, {seconds:.0f} s: {curve[-1].bleu:.2f}", flush=True)
        return curve

    def _batches(self) -> Iterator[Any]:
        self.model.train()
        while True:
            yield from self.loader

    def _score(self) -> float:
        self.model.eval()
        outputs: list[str] = []
        for start in range(0, len(self.validation), BATCH):
            sources = [source for source, _ in self.validation[start : start + BATCH]]
            inputs = self.tokenizer(sources, return_tensors="pt", padding=True)
            ids = self.model.generate(
                input_ids=inputs.input_ids,
                attention_mask=inputs.attention_mask,
                do_sample=False,
                num_beams=1,
                max_new_tokens=2 * inputs.input_ids.shape[1] + 20,
            )
            outputs += self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        self.model.train()
        return sacrebleu.corpus_bleu(outputs, [[target for _, target in self.validation]]).score


def minutes_to(curve: Curve, bleu: float) -> str:
    """When a curve first reaches a score, straight lines between its points; a dash if never."""
    for before, after in pairwise([Point(0, 0.0, 0.0), *curve]):
        if after.bleu >= bleu:
            share = (bleu - before.bleu) / (after.bleu - before.bleu)
            return f"{(before.seconds + share * (after.seconds - before.seconds)) / 60:.1f}"
    return "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multi30k", type=Path, required=True, help="folder with its files")
    parser.add_argument("--validation", default="val", help="what its validation split is called")
    parser.add_argument("--steps", type=int, default=1200, help="of ours (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=12, help="of the peer (default: %(default)s)")
    parser.add_argument("--peer_rates", type=float, nargs="+", default=[1e-3, 3e-3], help="its learning rates")
    parser.add_argument("--validations", type=int, default=8, help="of each run (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    load = os.getloadavg()[0]
    curves: dict[str, Curve] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        arguments = [f"--config={RECIPE}", f"--output_dir={folder}", f"--data.dataset={options.multi30k}"]
        arguments += [f"--data.validation={options.validation}", f"--data.test={options.validation}"]
        arguments += [f"--data.cache_dir={folder / 'cache'}", "--evaluation.select_by=bleu"]
        arguments += [f"--optimization.max_steps={options.steps}", "--optimization.r_drop=0"]
        arguments += [f"--evaluation.every_steps={max(1, options.steps // options.validations)}"]
        curves["paperformer"] = train_ours(arguments, folder)
        tokenizer = AutoTokenizer.from_pretrained(folder / RECIPE / "model", trust_remote_code=False)
        recipe = TRANSLATION.read_recipe(arguments)
        for rate in options.peer_rates:
            peer = Peer(recipe, tokenizer, rate, 60 * options.minutes)
            curves[f"Marian, learning rate {rate:g}"] = peer.train(options.validations)
    names = ("paperformer", "torch", "transformers", "sacrebleu")
    lines = [
        "# BLEU over time",
        "",
        (__doc__ or "").strip(),
        "",
        f"- Command: `python benchmarks/time_to_bleu.py {shlex.join(sys.argv[1:])}`",
        f"- Date: {datetime.now(UTC).date()}",
        f"- Hardware: {describe_hardware()}, {options.threads} threads each (load before: {load:.1f})",
        f"- Software: Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in names)}",
        "",
        "Minutes of training until a validation BLEU:",
        "",
        f"| | {' | '.join(map(str, LEVELS))} | steps | minutes | last BLEU |",
        f"|---|{'---:|' * (len(LEVELS) + 3)}",
    ]
    for name, curve in curves.items():
        times = " | ".join(minutes_to(curve, level) for level in LEVELS)
        last = curve[-1]
        lines.append(f"| {name} | {times} | {last.step:,} | {last.seconds / 60:.1f} | {last.bleu:.2f} |")
    lines += ["", "BLEU by minutes:", ""]
    for name, curve in curves.items():
        lines.append(f"- {name}: {', '.join(f'{point.seconds / 60:.1f}: {point.bleu:.2f}' for point in curve)}")
    RESULTS.write_text("\n".join(lines) + "\n", "utf-8")
    print(RESULTS)


if __name__ == "__main__":
    main()
