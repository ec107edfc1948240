"""A translation model of one domain taken to another with few pairs, beside training from scratch on those pairs.

    python benchmarks/train_further.py --base runs/tatoeba-en-de --data FOLDER

FOLDER has train.tsv.xz, valid.tsv and test.tsv of the new domain (English<tab>German). For each number of pairs two
runs have the same pairs, tokenizer, size, steps and options; one begins with the weights of the base. Writes a table of
validation loss and BLEU by step, and the scores on the test split, to benchmarks/results/train_further.md.
"""

import argparse
import json
import lzma
import random
import shlex
import sys
from datetime import date
from pathlib import Path
from typing import Any

from paperformer.training.engine.devices.hardware import describe_hardware
from paperformer.training.run import main as train
from paperformer.training.tasks.registry import OBJECTIVES

OPTIONS = {
    "data.source_language": "en",
    "data.target_language": "de",
    "optimization.learning_rate": 0.001,
    "optimization.schedule": "cosine",
    "optimization.warmup_steps": 50,
    "optimization.tokens_per_batch": 2048,
    "model.dropout": 0.2,
    "model.label_smoothing": 0.1,
    "evaluation.select_by": "bleu",
    "evaluation.num_beams": 1,
    "evaluation.validation_samples": 0,
    "checkpoints.keep_last": 1,
    "overwrite": "true",
}
STEPS = {1_000: 400, 10_000: 1_000}
VALIDATED = 400
"""Pairs of the validation split that are scored at each validation."""


def prepare_pairs(data: Path, folder: Path, count: int, seed: int) -> None:
    """Writes a sample of the training pairs, a part of the validation pairs, and the test pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    with lzma.open(data / "train.tsv.xz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    pairs = [line.split("\t")[:2] for line in lines]
    ordinary = [pair for pair in pairs if len(pair) == 2 and all(0 < len(side) < 300 for side in pair)]
    chosen = random.Random(seed).sample(ordinary, count)
    texts = {"train": "".join("\t".join(pair) + "\n" for pair in chosen)}
    valid = (data / "valid.tsv").read_text("utf-8").splitlines()
    texts["validation"] = "".join(f"{line}\n" for line in random.Random(seed).sample(valid, VALIDATED))
    texts["test"] = (data / "test.tsv").read_text("utf-8")
    for split, text in texts.items():
        (folder / f"{split}.tsv").write_text(text, "utf-8")


def run(name: str, options: dict[str, Any], output: Path) -> Path:
    """Trains, and returns the run's folder."""
    words = [word for field, value in options.items() for word in (f"--{field}", str(value))]
    return train(OBJECTIVES["seq2seq"], ["--name", name, "--output_dir", str(output), *words]).parent


def rows_of(folder: Path) -> tuple[list[tuple[int, float, float]], dict[str, Any]]:
    """(step, validation loss, BLEU) of a run, and its scores on the test split."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    validations = [(r["step"], r["validation"]["loss"], r["validation"]["bleu"]) for r in records if "validation" in r]
    return validations, json.loads((folder / "evaluation" / "evaluation.json").read_text("utf-8"))["test"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="run of the model to begin with")
    parser.add_argument("--data", type=Path, required=True, help="folder of the new domain")
    parser.add_argument("--pairs", type=int, nargs="+", default=list(STEPS), help="numbers of pairs")
    parser.add_argument("--output", type=Path, default=Path("runs/train_further"))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    config = json.loads((arguments.base / "model" / "config.json").read_text("utf-8"))
    same = ["hidden_size", "intermediate_size", "num_attention_heads", "encoder_layers", "decoder_layers"]
    same += ["norm_position", "position_embedding_type", "max_position_embeddings"]
    size = {f"model.{name}": config[name] for name in same}
    base_scores = json.loads((arguments.base / "evaluation" / "evaluation.json").read_text("utf-8"))["test"]
    lines = [
        "# Training further, and from scratch",
        "",
        f"`python benchmarks/train_further.py {shlex.join(sys.argv[1:])}`, {date.today()}, {describe_hardware()}, seed "
        f"{arguments.seed}.",
        "",
        f"Base: {arguments.base.name}, BLEU {base_scores['bleu']['score']:.2f} on its own test split. Both runs of a "
        "pair have its tokenizer and size, the same pairs, steps and options; validation: "
        f"{VALIDATED} pairs, greedy; test: the whole split, greedy. Losses are nats a token of the same vocabulary.",
        "",
    ]
    for count in arguments.pairs:
        folder = arguments.output / f"pairs-{count}"
        prepare_pairs(arguments.data, folder, count, arguments.seed)
        steps = STEPS.get(count, 1_000)
        common = OPTIONS | {
            "data.dataset": folder,
            "seed": arguments.seed,
            "optimization.max_steps": steps,
            "evaluation.every_steps": steps // 5,
        }
        scratch = size | {"tokenizer.path": arguments.base / "model"}
        found = {
            "from scratch": rows_of(run(f"scratch-{count}", common | scratch, arguments.output)),
            "from the base": rows_of(run(f"further-{count}", common | {"init_from": arguments.base}, arguments.output)),
        }
        lines += [f"## {count:,} pairs", "", "| Step | " + " | ".join(f"{k}: loss | BLEU" for k in found) + " |"]
        lines += ["|---:|" + "---:|---:|" * len(found)]
        for rows in zip(*(validations for validations, _ in found.values()), strict=True):
            cells = "".join(f" {loss:.3f} | {bleu:.2f} |" for _, loss, bleu in rows)
            lines.append(f"| {rows[0][0]:,} |{cells}")
        tests = "; ".join(
            f"{name}: BLEU {test['bleu']['score']:.2f}, chrF {test['chrf']['score']:.2f}, loss "
            f"{test['loss']['nats_per_token']:.3f}"
            for name, (_, test) in found.items()
        )
        signature = next(iter(found.values()))[1]["bleu"]["signature"]
        lines += ["", f"Test, {found['from scratch'][1]['sentences']:,} sentences: {tests} (`{signature}`).", ""]
        path = Path(__file__).parent / "results" / "train_further.md"
        path.write_text("\n".join(lines), "utf-8")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
