"""The quickstart: two models from nothing to use, in minutes, with data that ships with the package."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from .api.recipes import objective_of, read_recipe
from .api.runs import train
from .training.run import one_line_endings

PROMPT = "KING RICHARD:\n"

# Seconds instead of minutes, to see that everything works; the models are then of no use.
FAST: dict[str, dict[str, int]] = {
    "shakespeare-lm": {"optimization.max_steps": 40, "evaluation.every_steps": 40},
    "cldr-en-de": {"optimization.max_steps": 40, "evaluation.every_steps": 40, "evaluation.num_beams": 1},
}

# Runs where `paperformer` cannot be imported: what is loaded is the code in the model's folder.
LOAD_BACK = """
import json, sys
sys.modules["paperformer"] = None
lm, translator, prompt, sentences = json.loads(sys.argv[1])

import torch, transformers
from transformers import pipeline
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
transformers.set_seed(1)

translate = pipeline("translation", model=translator, trust_remote_code=True)
generate = pipeline("text-generation", model=lm, trust_remote_code=True)
outputs = [output["translation_text"] for output in translate(sentences)]
passage = generate(prompt, max_new_tokens=120)[0]["generated_text"]
print(json.dumps([outputs, passage]))
"""


def run_quickstart(output_dir: Path, *, fast: bool) -> None:
    """Trains `shakespeare-lm` and `cldr-en-de`, loads both without the package, and shows what they do.

    Raises:
        RuntimeError: if a finished model does not load from its folder alone.
    """
    started = time.perf_counter()
    models: dict[str, Path] = {}
    for name in FAST:
        recipe = read_recipe(name, {"output_dir": output_dir, "overwrite": True, **(FAST[name] if fast else {})})
        command = objective_of(recipe).command(recipe.arguments)
        print(f"\n== {name}: {command}", flush=True)
        with one_line_endings(command):
            models[name] = train(recipe).model_folder
        print(f"model: {models[name]}")

    print("\n== loading both models in a process that cannot import paperformer", flush=True)
    samples = _read_test_sources(models["cldr-en-de"])
    lm, translator = (str(models[name].resolve()) for name in ("shakespeare-lm", "cldr-en-de"))
    translations, passage = _use_without_package(lm, translator, samples)
    for source, translation in zip(samples, translations, strict=True):
        print(f"  {source}  ->  {translation}")
    print(f"\n{passage}\n")

    minutes = (time.perf_counter() - started) / 60
    print(f"models: {models['shakespeare-lm']}, {models['cldr-en-de']} ({minutes:.1f} minutes)")
    print("Load them anywhere, with or without paperformer:\n")
    print("  from transformers import pipeline")
    print(f'  translate = pipeline("translation", model={str(models["cldr-en-de"])!r}, trust_remote_code=True)')
    print(f"  print(translate({samples[0]!r}))")


def _read_test_sources(model: Path, count: int = 8) -> list[str]:
    """Sources of the test split, as the model's run has sampled them."""
    lines = (model.parent / "evaluation" / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)[0] for line in lines[:count]]


def _use_without_package(lm: str, translator: str, sentences: list[str]) -> tuple[list[str], str]:
    """Translations and a sampled passage from a fresh process that has transformers but not paperformer."""
    result = subprocess.run(
        [sys.executable, "-I", "-c", LOAD_BACK, json.dumps([lm, translator, PROMPT, sentences])],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(f"the models do not load without the package:\n{result.stderr}")
    translations, passage = json.loads(result.stdout.splitlines()[-1])
    return translations, passage
