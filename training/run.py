"""A training run from recipe to finished model: tokenizer, training, scores, model folder, card, upload."""

import json
import logging
import shlex
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import transformers
from accelerate import Accelerator
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ..tokenization import train_bpe
from .card import EVALUATION_FILE, ModelCardFacts, write_card
from .engine import FittedModel, NonFiniteGradientError, Task, TrainingStopped, fit
from .input_error import InputError, one_line_errors
from .progress import is_first_process, say
from .recipe import Recipe
from .run_folder import RunFolder, replace_folder


def run(
    recipe: Recipe[Any],
    texts: Iterable[str],
    make_task: Callable[[PreTrainedTokenizerFast], Task],
    *,
    append_eos: bool,
    max_length: int | None,
    command: str,
) -> Path:
    """Carries out a recipe and returns the finished model's folder.

    Everything that can be checked is checked before the run's folder is touched.

    Args:
        recipe: the run's options.
        texts: what to train a tokenizer on.
        make_task: makes the task, given the tokenizer.
        append_eos, max_length: of the tokenizer (see `train_bpe`).
        command: the command line, for the card.

    Raises:
        InputError: if something that the user gave cannot be used.
        NonFiniteGradientError: if training diverged.
        TrainingStopped: if the run was interrupted; its state is saved.
    """
    accelerator = Accelerator(mixed_precision=recipe.optimization.mixed_precision)
    folder = RunFolder(recipe.run)
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            folder.check(recipe)
            tokenizer = _tokenizer(recipe, folder, texts, append_eos=append_eos, max_length=max_length)
            task = make_task(tokenizer)
            folder.create(recipe.yaml)
            if not folder.tokenizer_path.is_dir():
                replace_folder(folder.tokenizer_path, tokenizer.save_pretrained)
        else:
            tokenizer = _load_tokenizer(folder.tokenizer_path)
            task = make_task(tokenizer)
    fitted = fit(task, recipe, folder, accelerator)
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
    logging.getLogger("accelerate").setLevel(logging.ERROR)  # warns at every checkpoint that weights are tied
    with one_line_errors():
        try:
            model_path = run_recipe(arguments, command)
        except TrainingStopped as stopped:
            say(str(stopped))
            sys.exit(130)
        except KeyboardInterrupt:
            say("interrupted; training had not begun, or goes on with --resume from its last checkpoint")
            sys.exit(130)
        except NonFiniteGradientError as error:
            say(f"error: {error}")
            sys.exit(1)
    if is_first_process():
        print(f"model: {model_path}")
    return model_path


def _tokenizer(
    recipe: Recipe[Any], folder: RunFolder, texts: Iterable[str], *, append_eos: bool, max_length: int | None
) -> PreTrainedTokenizerFast:
    """The tokenizer of the run: the one it already has, the one that is asked for, or a new one."""
    options = recipe.tokenizer
    if recipe.run.resume and folder.tokenizer_path.is_dir():
        return _load_tokenizer(folder.tokenizer_path)
    if options.path is not None:
        return _given_tokenizer(Path(options.path), append_eos=append_eos)
    say(f"training a tokenizer of {options.vocab_size:,} entries")
    try:
        return train_bpe(
            texts,
            options.vocab_size,
            append_eos=append_eos,
            split_digits=options.split_digits,
            min_frequency=options.min_frequency,
            model_max_length=max_length,
        )
    except ValueError as error:
        raise InputError(f"tokenizer: {error}") from error


def _given_tokenizer(path: Path, *, append_eos: bool) -> PreTrainedTokenizerFast:
    """The tokenizer of `tokenizer.path`, if it suits the task."""
    if not (path / "tokenizer.json").is_file():
        raise InputError(f"tokenizer.path: there is no tokenizer.json in {path}")
    try:
        tokenizer = _load_tokenizer(path)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"tokenizer.path: {path} holds no tokenizer: {str(error).splitlines()[0]}") from error
    for name in ("pad_token", "bos_token", "eos_token"):
        if getattr(tokenizer, name) is None:
            raise InputError(f"tokenizer.path: the tokenizer of {path} has no {name}")
    if (tokenizer("").input_ids[-1:] == [tokenizer.eos_token_id]) != append_eos:
        must = "must end every text with" if append_eos else "must not end texts with"
        raise InputError(f"tokenizer.path: the tokenizer of {path} {must} {tokenizer.eos_token} for this task")
    return tokenizer


def _load_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(f"{path} holds a {type(tokenizer).__name__}; it must be a fast tokenizer (tokenizer.json)")
    return tokenizer


def _finish(
    recipe: Recipe[Any],
    folder: RunFolder,
    task: Task,
    fitted: FittedModel,
    tokenizer: PreTrainedTokenizerFast,
    command: str,
) -> None:
    """Scores the model on validation and test, and writes the model folder and its card."""
    evaluation: dict[str, dict[str, Any]] = {}
    outputs: list[str] = []
    for split in ("validation", "test"):
        evaluation[split], outputs = task.evaluate(fitted.model, split)
        say(f"{split}: {_one_line(evaluation[split])}")
    scores = json.dumps(evaluation, indent=2, ensure_ascii=False) + "\n"
    samples = task.samples(outputs)

    def write_evaluation(path: Path) -> None:
        (path / EVALUATION_FILE).write_text(scores, encoding="utf-8")
        for name, records in (("test.outputs", outputs), ("samples", samples)):
            lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            (path / f"{name}.jsonl").write_text(lines, encoding="utf-8")

    replace_folder(folder.evaluation_path, write_evaluation)

    curve = [(r["step"], r["validation"]["loss"]) for r in folder.metrics() if "validation" in r]
    is_on_hub = not recipe.data.dataset.startswith("built-in:") and not Path(recipe.data.dataset).is_dir()
    data = vars(recipe.data)
    facts = ModelCardFacts(
        name=recipe.run.name,
        task=evaluation["test"]["task"],
        dataset=_title(recipe.data.dataset),
        hub_dataset=recipe.data.dataset if is_on_hub else None,
        splits=task.splits(),
        languages=[data[key] for key in ("source_language", "target_language", "language") if key in data],
        license=recipe.run.license,
        config=fitted.model.config.to_dict(),
        parameters=fitted.model.num_parameters(),
        recipe=recipe.yaml,
        command=command,
        seed=recipe.run.seed,
        hardware=", then ".join(dict.fromkeys(r["hardware"] for r in folder.metrics() if "hardware" in r)),
        minutes=fitted.seconds / 60,
        versions={name: version(name) for name in ("paperformer", "torch", "transformers", "tokenizers", "sacrebleu")},
        validation_curve=curve,
        evaluation=evaluation,
        samples=samples,
    )

    def write_model(path: Path) -> None:
        fitted.model.save_pretrained(path)
        tokenizer.save_pretrained(path)
        (path / EVALUATION_FILE).write_text(scores, encoding="utf-8")
        write_card(path, facts)

    replace_folder(folder.model_path, write_model)
    if recipe.run.push_to_hub:
        _publish(folder.model_path, recipe.run.push_to_hub)


def _publish(model_path: Path, repo_id: str) -> None:
    from huggingface_hub.errors import HfHubHTTPError

    from ..hub import push  # the front door, which imports this package

    try:
        address = push(model_path, repo_id)
    except (HfHubHTTPError, OSError) as error:
        raise InputError(
            f"{model_path} is finished, and could not be uploaded to {repo_id}: {str(error).splitlines()[0]}; "
            f"try again with: paperformer push {model_path} {repo_id}"
        ) from error
    say(f"published: {address}")


def _one_line(scores: dict[str, Any]) -> str:
    parts = []
    for name, value in scores.items():
        if isinstance(value, dict):
            value = value.get("score", value.get("nats_per_token"))
        if isinstance(value, float) and name != "seconds":
            parts.append(f"{name} {value:.3f}")
    return ", ".join(parts)


def _title(dataset: str) -> str:
    """What a card calls the data."""
    built_in = {
        "built-in:cldr": "localised expressions of Unicode CLDR",
        "built-in:shakespeare": "Shakespeare's plays",
    }
    return built_in.get(dataset) or (Path(dataset).resolve().name if Path(dataset).is_dir() else dataset)
