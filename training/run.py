"""A training run from recipe to finished model: tokenizer, training, scores, model folder, card, upload."""

import json
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import Accelerator
from huggingface_hub.errors import StrictDataclassError
from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ..tokenization import train_bpe
from .card import EVALUATION_FILE, ModelCardFacts, write_card
from .engine import FittedModel, Task, TrainingStopped, fit
from .input_error import InputError, one_line_errors
from .recipe import Recipe
from .run_folder import RunFolder, replace_file, replace_folder


def run(
    recipe: Recipe,
    texts: Iterable[str],
    make_task: Callable[[PreTrainedTokenizerFast], Task],
    *,
    append_eos: bool,
    max_length: int | None,
    command: str,
) -> Path:
    """Carries out a recipe and returns the finished model's folder.

    Args:
        recipe: the run's options.
        texts: what to train a tokenizer on.
        make_task: makes the task, given the tokenizer.
        append_eos, max_length: of the tokenizer (see `train_bpe`).
        command: the command line, for the card.

    Raises:
        InputError: if something that the user gave cannot be used.
        TrainingStopped: if the run was interrupted; its state is saved.
    """
    accelerator = Accelerator(mixed_precision=recipe.optimization.mixed_precision)
    with accelerator.main_process_first():
        folder = RunFolder(recipe.run, recipe.yaml, create=accelerator.is_main_process)
        tokenizer = _tokenizer(recipe, folder, texts, append_eos=append_eos, max_length=max_length)
    try:
        task = make_task(tokenizer)
        fitted = fit(task, recipe, folder, accelerator)
    except StrictDataclassError as error:
        raise InputError(f"model: {str(error.__cause__ or error).splitlines()[-1].strip()}") from error
    if accelerator.is_main_process:
        _finish(recipe, folder, task, fitted, tokenizer, command)
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return folder.model_path


def main(run_recipe: Callable[[list[str], str], Path], module: str, arguments: list[str] | None = None) -> Path:
    """Runs a training script: bad input ends in one line and exit code 2, an interruption in exit code 130.

    Args:
        run_recipe: takes the command line's arguments and the command line as the card shows it.
        module: the script, as `accelerate launch -m` takes it.
        arguments: by default those of this process.
    """
    if arguments is None:
        arguments = sys.argv[1:]
    command = f"accelerate launch -m {module} {shlex.join(arguments)}"
    transformers.logging.set_verbosity_error()  # its progress bars and hints would tear ours apart
    transformers.logging.disable_progress_bar()
    with one_line_errors():
        try:
            model_path = run_recipe(arguments, command)
        except TrainingStopped as stopped:
            print(stopped, file=sys.stderr)
            sys.exit(130)
    print(f"model: {model_path}")
    return model_path


def _tokenizer(
    recipe: Recipe, folder: RunFolder, texts: Iterable[str], *, append_eos: bool, max_length: int | None
) -> PreTrainedTokenizerFast:
    """The tokenizer of the run: the one it already has, the one that is asked for, or a new one."""
    options = recipe.tokenizer
    if folder.tokenizer_path.is_dir():
        return AutoTokenizer.from_pretrained(folder.tokenizer_path, trust_remote_code=False)
    if options.path is not None:
        if not (Path(options.path) / "tokenizer.json").is_file():
            raise InputError(f"tokenizer.path: there is no tokenizer.json in {options.path}")
        shutil.copytree(options.path, folder.tokenizer_path)
        return AutoTokenizer.from_pretrained(folder.tokenizer_path, trust_remote_code=False)
    try:
        tokenizer = train_bpe(
            texts,
            options.vocab_size,
            append_eos=append_eos,
            split_digits=options.split_digits,
            min_frequency=options.min_frequency,
            model_max_length=max_length,
        )
    except ValueError as error:
        raise InputError(f"tokenizer: {error}") from error
    replace_folder(folder.tokenizer_path, tokenizer.save_pretrained)
    return tokenizer


def _finish(
    recipe: Recipe, folder: RunFolder, task: Any, fitted: FittedModel, tokenizer: PreTrainedTokenizerFast, command: str
) -> None:
    """Scores the model on validation and test, and writes the model folder and its card."""
    evaluation, outputs = {}, []
    for split in ("validation", "test"):
        evaluation[split], outputs = task.evaluate(fitted.model, split)
        tqdm.write(f"{split}: {_one_line(evaluation[split])}")
    scores = json.dumps(evaluation, indent=2, ensure_ascii=False) + "\n"
    folder.evaluation_path.mkdir(exist_ok=True)
    replace_file(folder.evaluation_path / EVALUATION_FILE, scores)
    samples = task.samples(outputs)
    for name, records in (("test.outputs", outputs), ("samples", samples)):
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        replace_file(folder.evaluation_path / f"{name}.jsonl", lines)

    curve = [(r["step"], r["validation"]["loss"]) for r in folder.metrics() if "validation" in r]
    is_built_in, is_local = recipe.data.dataset.startswith("built-in:"), Path(recipe.data.dataset).is_dir()
    data = vars(recipe.data)
    facts = ModelCardFacts(
        name=recipe.run.name,
        task=evaluation["test"]["task"],
        dataset=Path(recipe.data.dataset).resolve().name if is_local else recipe.data.dataset.removeprefix("built-in:"),
        hub_dataset=None if is_local or is_built_in else recipe.data.dataset,
        splits=task.splits(),
        languages=[data[key] for key in ("source_language", "target_language", "language") if key in data],
        license=recipe.run.license,
        config=fitted.model.config.to_dict(),
        parameters=fitted.model.num_parameters(),
        recipe=recipe.yaml,
        command=command,
        seed=recipe.run.seed,
        hardware=describe_hardware(),
        minutes=fitted.seconds / 60,
        versions={name: version(name) for name in ("paperformer", "torch", "transformers", "tokenizers", "sacrebleu")},
        validation_curve=curve,
        evaluation=evaluation,
        samples=samples,
    )

    def write(path: Path) -> None:
        fitted.model.save_pretrained(path)
        tokenizer.save_pretrained(path)
        (path / EVALUATION_FILE).write_text(scores, encoding="utf-8")
        write_card(path, facts)

    replace_folder(folder.model_path, write)
    if recipe.run.push_to_hub:
        from ..hub import push  # the front door, which imports this package

        print(f"published: {push(folder.model_path, recipe.run.push_to_hub)}")


def _one_line(scores: dict[str, Any]) -> str:
    parts = []
    for name, value in scores.items():
        if isinstance(value, dict):
            value = value.get("score", value.get("nats_per_token"))
        if isinstance(value, float) and name != "seconds":
            parts.append(f"{name} {value:.3f}")
    return ", ".join(parts)


def describe_hardware() -> str:
    """The processor or the GPUs that this process computes on."""
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [
            line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        name = models[0] if models else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores of {name}"
