"""Makes a model that comes with the package out of a finished run: weights in 16 bits, scored again, and its card.

    python benchmarks/ship_model.py RUN cldr-en-de --sources FILE --references FILE
    python benchmarks/ship_model.py RUN shakespeare --text FILE

The files are the run's test split, as raw lines or as a text. Both the run's own model and the 16-bit one are scored on
them, by the same call; the card has both, and paperformer/shipped_models/manifest.json the SHA-256 of every file.
"""

import argparse
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import paperformer
from paperformer.api.text_scores import evaluate_text
from paperformer.shipped_models import FOLDER
from paperformer.training.evaluation.evaluation_file import fields_of
from paperformer.training.evaluation.metrics import Score
from paperformer.training.exact_weights import hash_weights

FACTS: dict[str, dict[str, str]] = {
    "cldr-en-de": {
        "task": "translation",
        "about": "English to German: dates, amounts, measurements, durations and names",
        "example": "Wednesday, March 5, 2025",
        "licence": "Weights and code: Apache-2.0. The expressions it was trained on are composed of data of [Unicode "
        "CLDR](https://cldr.unicode.org/), under the [Unicode License v3](https://www.unicode.org/license.txt), "
        "Copyright © 1991-2025 Unicode, Inc.; they come by way of Babel.",
    },
    "shakespeare": {
        "task": "text-generation",
        "about": "continues texts as Shakespeare's plays go on, character by character",
        "example": "KING RICHARD:\n",
        "licence": "Weights and code: Apache-2.0. The plays it was trained on are in the public domain.",
    },
}
LEFT_OUT = ("metrics.jsonl", "evaluation", "*.py", "__pycache__")
"""Of the run's model: what does not load it here, where its code is the package's own."""
CODE_FIELDS = ("auto_map", "custom_pipelines")
"""Of config.json: what says where the code lies. `save_pretrained` writes both again."""


def read_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def score(folder: Path, options: argparse.Namespace) -> list[Score]:
    if options.text:
        return evaluate_text(str(folder), Path(options.text), documents="joined")
    sources, references = read_lines(Path(options.sources)), read_lines(Path(options.references))
    return paperformer.evaluate(str(folder), sources, references, num_beams=4)


def convert(run: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run / "model", folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
    weights = load_file(folder / "model.safetensors")
    halved = {name: tensor.to(torch.float16).contiguous() for name, tensor in weights.items()}
    assert all(tensor.isfinite().all() for tensor in halved.values())
    (folder / "model.safetensors").unlink()
    save_file(halved, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config = {name: value for name, value in config.items() if name not in CODE_FIELDS}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    for path in folder.iterdir():
        path.chmod(0o644)


def use(name: str) -> str:
    """How it is used: by its name, from an installed paperformer, whose code it is."""
    command = f"echo {FACTS[name]['example']!r} | paperformer translate {name}"
    if FACTS[name]["task"] == "text-generation":
        command = f"paperformer generate {name} {FACTS[name]['example'].strip()!r}"
    return (
        f"## Use\n\nIt comes with paperformer and is found by its name:\n\n```bash\n{command}\n```\n\n"
        "`paperformer.translate` and `paperformer.generate` take the name as well, and what `save_pretrained` writes "
        "of it loads\nwith transformers alone.\n\n"
    )


def write_card(folder: Path, name: str, before: list[Score], after: list[Score]) -> None:
    """Adds what became of the weights; the run's own figures stay, and its name where it is that of a recipe."""
    rows = [
        f"| {one.metric.label} | {one.value:.4f} | {other.value:.4f} | {one.basis.replace('|', chr(92) + '|')} |"
        for one, other in zip(before, after, strict=True)
    ]
    section = "\n".join(
        [
            "## Weights in 16 bits",
            "",
            "paperformer ships this model with its weights stored as float16; they are loaded as float32. Both were",
            "scored on the run's test split by the same call (`benchmarks/ship_model.py`):",
            "",
            "| Metric | float32 | float16 | Measured over |",
            "|---|---:|---:|---|",
            *rows,
            "",
        ]
    )
    card = (folder / "README.md").read_text("utf-8")
    card, number = re.subn(r"## Use\n.*?(?=## Results\n)", lambda _: use(name), card, flags=re.DOTALL)
    assert number == 1
    card, number = re.subn(r"## Licence\n.*", "", card, flags=re.DOTALL)
    assert number == 1
    card = re.sub(r"^license: .*\n", "", card, count=1)
    if "\nlicense: apache-2.0\n" not in card[:200]:
        card = card.replace("---\n", "---\nlicense: apache-2.0\n", 1)
    (folder / "README.md").write_text(f"{card}{section}\n## Licence\n\n{FACTS[name]['licence']}\n", "utf-8")


def write_evaluation(folder: Path, scores: list[Score]) -> None:
    """evaluation.json of exactly these weights."""
    kept: dict[str, Any] = json.loads((folder / "evaluation.json").read_text("utf-8"))["test"]
    head = {name: kept[name] for name in ("task", "split", "decoding") if name in kept}
    entry = head | fields_of(scores) | {"weights_sha256": hash_weights(folder)}
    (folder / "evaluation.json").write_text(json.dumps({"test": entry}, indent=2) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("name", choices=FACTS)
    for option in ("sources", "references", "text"):
        parser.add_argument(f"--{option}")
    options = parser.parse_args()
    folder = FOLDER / options.name
    convert(options.run, folder)
    before, after = score(options.run / "model", options), score(folder, options)
    for one, other in zip(before, after, strict=True):
        print(f"{one.metric.label}: {one.value:.6f} in float32, {other.value:.6f} in float16 ({one.basis})")
    write_evaluation(folder, after)
    write_card(folder, options.name, before, after)
    manifest = json.loads((FOLDER / "manifest.json").read_text("utf-8"))
    facts = {field: FACTS[options.name][field] for field in ("task", "about", "example")}
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
    manifest[options.name] = facts | {"sha256": hashes}
    (FOLDER / "manifest.json").write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
