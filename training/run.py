"""A training run from recipe to finished model: tokenizer, training, scores, model folder, card, upload."""

import json
import logging
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datasets
import psutil
import torch
import transformers
import yaml
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import InitProcessGroupKwargs

from ..configuration.configuration_transformer import TransformerConfig
from .atomic_files import replace_file, replace_folder
from .console.input_error import InputError, one_line_errors
from .console.progress import is_first_process, say
from .data.cleaning.report import report_table
from .data.corpus import Corpus
from .data.splits import Splits, cache_folder, domains_of_test, training_sources
from .data.tokenizers import Tokenizers, given_tokenizers, load_tokenizers, trained_tokenizers
from .engine.devices.compiling import check_compiler
from .engine.devices.precision import Precision
from .engine.guard import TrainingDivergedError
from .engine.loop import FittedModel, fit
from .engine.stop_request import TrainingStopped
from .evaluation.domains import score_domains_of_text
from .evaluation.evaluation_file import (
    EVALUATION_FILE,
    LOSSES_FILE,
    OUTPUTS_FILE,
    PAIRS_FILE,
    PASSAGES_FILE,
    Evaluation,
    entry_of,
    entry_of_parts,
)
from .evaluation.metrics import scoring_options
from .evaluation.translation_report import Weaknesses, find_weaknesses
from .exact_weights import hash_weights
from .publishing import upload
from .recipe.optimization import Optimization
from .recipe.recipe import Recipe
from .reporting.card import ModelCardFacts, write_card
from .reporting.report import write_report
from .reporting.trackers import check_trackers, start_trackers
from .run_folder import METRICS_FILE, NothingSaved, RunFolder
from .tasks.base_model import base_tokenizers, find_base
from .tasks.objective import Objective
from .tasks.protocols import Task

WORST_SENTENCES = 5
"""How many a card shows."""

DROWNING = 10.0
"""From how many times the size of the embeddings on sinusoids are warned of."""


def make_tokenizers(objective: Objective, recipe: Recipe[Any], splits: Splits) -> Tokenizers:
    """The tokenizers that a recipe asks for: given ones, or trained on the training text."""
    needs = objective.tokenizer_needs(recipe)
    if recipe.run.init_from is not None:
        return base_tokenizers(recipe, needs, objective.family)
    if recipe.tokenizer.path is not None:
        return given_tokenizers(recipe.tokenizer, needs)
    return trained_tokenizers(recipe, splits.train, cache_folder(recipe), needs)


def run(objective: Objective, recipe: Recipe[Any], command: str) -> Path:
    """Carries out a recipe and returns the finished model's folder.

    Everything that can be checked is checked before the run's folder is touched.

    Args:
        objective: what the recipe is for.
        recipe: what to do.
        command: the command line, for the card.

    Raises:
        InputError: if something that the user gave cannot be used.
        TrainingDivergedError: if the loss exploded.
        TrainingStopped: if the run was interrupted; its state is saved.
        NothingSaved: if it was interrupted before there was anything to save, and was to replace another run.
    """
    check_trackers(recipe.run.trackers)
    # Others wait while the first process reads the data, or validates.
    patience = InitProcessGroupKwargs(timeout=timedelta(hours=6))
    # In a notebook a Trainer of transformers may have left a state with another precision, which would be refused.
    AcceleratorState._reset_state()
    accelerator = Accelerator(mixed_precision="no", kwargs_handlers=[patience])
    _check_device(recipe.optimization, accelerator.device)
    folder = RunFolder(recipe.run)
    with folder.taken() if accelerator.is_main_process else nullcontext():
        return _carry_out(objective, recipe, command, folder, accelerator)


def _carry_out(
    objective: Objective, recipe: Recipe[Any], command: str, folder: RunFolder, accelerator: Accelerator
) -> Path:
    """The run itself, in a folder that no other process writes."""
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            changes = folder.check(recipe)
            if not recipe.run.resume and recipe.run.init_from is None:
                _warn_of_sinusoids(objective.family.config(**recipe.model))
            splits = objective.open_splits(recipe)
            _say_what_was_left_out(splits)
            has_tokenizers = recipe.run.resume and folder.tokenizer_path.is_dir()
            tokenizers = (
                load_tokenizers(folder.tokenizer_path) if has_tokenizers else make_tokenizers(objective, recipe, splits)
            )
            task = objective.make_task(recipe, splits, tokenizers)
            for change in changes:
                say(f"{change.field} was {change.before} when the run was begun, and is {change.now} from here on")
            folder.create(recipe.yaml)
            if recipe.run.init_from is not None and not folder.base_path.is_file():
                replace_file(folder.base_path, json.dumps(find_base(recipe.run.init_from).record(), indent=2) + "\n")
            if not folder.tokenizer_path.is_dir():
                replace_folder(folder.tokenizer_path, tokenizers.save)
            replace_file(folder.data_path, json.dumps(splits.report(), indent=2, ensure_ascii=False) + "\n")
        else:
            tokenizers = load_tokenizers(folder.tokenizer_path)
            task = objective.make_task(recipe, objective.open_splits(recipe), tokenizers)
    if accelerator.is_main_process:
        done = max((step for step, _ in folder.checkpoints()), default=0)
        options = yaml.safe_load(recipe.yaml)
        start_trackers(accelerator, recipe.run.trackers, folder.path, recipe.run.name, options, step=done)
    try:
        fitted = fit(task, recipe, folder, accelerator)
        _finish(objective, recipe, folder, task, fitted, tokenizers, command)
        accelerator.wait_for_everyone()
    finally:
        accelerator.end_training()
    return folder.model_path


def _check_device(options: Optimization, device: torch.device) -> None:
    """Raises InputError if a device cannot do what a recipe asks of it."""
    Precision(options.mixed_precision, device)
    if options.compile:
        check_compiler(device)


def main(objective: Objective, arguments: list[str] | None = None) -> Path:
    """Runs a training script: bad input ends in one line and exit code 2, an interruption in exit code 130.

    Args:
        objective: what the script trains for.
        arguments: by default those of this process.
    """
    if arguments is None:
        arguments = sys.argv[1:]
    command = objective.command(arguments)
    make_quiet()
    with one_line_endings(_typed(objective) or command):
        model_path = run(objective, objective.read_recipe(arguments), command)
    if is_first_process():
        print(f"model: {model_path}")
    return model_path


@contextmanager
def one_line_endings(command: str, resuming: str | None = None) -> Iterator[None]:
    """Ends the program with a line and an exit code where training in this context ends other than well.

    Args:
        command: how to begin it again.
        resuming: how to go on with it; by default the command with --resume.
    """
    resuming = resuming or _resuming(command)
    with one_line_errors():
        try:
            yield
        except TrainingStopped as stopped:
            say(f"{stopped}; go on with: {resuming}")
            sys.exit(130)
        except NothingSaved:
            say(f"interrupted before anything was saved; begin again with: {command}")
            sys.exit(130)
        except KeyboardInterrupt:
            say(f"interrupted; go on from the last checkpoint, if there is one yet, with: {resuming}")
            sys.exit(130)
        except TrainingDivergedError as error:
            say(f"error: {error}")
            sys.exit(1)


def _typed(objective: Objective) -> str | None:
    """The command that started this process, as far as it shows: `paperformer train`, or a launcher and its options."""
    if Path(sys.argv[0]).stem == "paperformer" and sys.argv[1:3] == ["train", objective.name]:
        return shlex.join(["paperformer", *sys.argv[1:]])
    try:
        started_by = psutil.Process(os.getppid()).cmdline()
    except psutil.Error:
        return None
    if "launch" in started_by and objective.script in started_by:
        return shlex.join(["accelerate", *started_by[started_by.index("launch") :]])
    return None


def _resuming(command: str) -> str:
    """The command that goes on with what a command has begun."""
    words = shlex.split(command)
    overwrites = [index for index, word in enumerate(words) if word.partition("=")[0] == "--overwrite"]
    for index in reversed(overwrites):
        has_value = words[index] == "--overwrite" and words[index + 1 : index + 2] in (["true"], ["false"])
        del words[index : index + 1 + has_value]
    return shlex.join(words if "--resume" in words else [*words, "--resume"])


def _say_what_was_left_out(splits: Splits) -> None:
    if isinstance(splits.train, Corpus):
        report = splits.train.report["cleaning"]
        if report["kept"] < report["rows"]:
            say(report_table(report, "data.train"))


def _warn_of_sinusoids(config: TransformerConfig) -> None:
    """Says that a model's tokens will drown in their positions, if they will."""
    ratio = config.sinusoids_to_embeddings
    if config.position_embedding_type == "sinusoidal" and ratio > DROWNING:
        say(
            f"model.position_embedding_type is sinusoidal, and sinusoids are {ratio:.0f} times as large as the "
            "embeddings that they are added to, so that little is learned; give --model.scale_embedding true"
        )


def make_quiet() -> None:
    """Keeps the libraries' progress bars and hints from tearing ours apart."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    logging.getLogger("accelerate").setLevel(logging.ERROR)  # warns at every checkpoint that weights are tied


def _finish(
    objective: Objective,
    recipe: Recipe[Any],
    folder: RunFolder,
    task: Task,
    fitted: FittedModel,
    tokenizers: Tokenizers,
    command: str,
) -> None:
    """Scores the model on validation and test; the first process writes the model folder and its card."""
    entries: dict[str, dict[str, Any]] = {}
    for split in ("validation", "test"):
        started = time.perf_counter()
        evaluated = fitted.evaluate(split)
        if evaluated is None:
            return
        evaluation = evaluated
        entries[split] = entry_of(objective.hub_task, split, evaluation, time.perf_counter() - started)
        say(f"{split}: {', '.join(f'{score.metric.entry} {score.value:.3f}' for score in evaluation.scores)}")
    if not is_first_process():
        return
    weaknesses = _weaknesses(recipe, evaluation)
    entries["test"] |= entry_of_parts(weaknesses)
    samples = task.scoring.samples(evaluation.outputs)
    outputs = _json_lines(evaluation.outputs)

    def write_model(path: Path) -> None:
        fitted.model.save_pretrained(path)
        tokenizers.limited_to(fitted.model.config.position_limit).save(path)
        for entry in entries.values():
            entry["weights_sha256"] = hash_weights(path)
        (path / EVALUATION_FILE).write_text(_json(entries), encoding="utf-8")
        (path / METRICS_FILE).write_text(_json_lines(folder.curve()), encoding="utf-8")
        if evaluation.pairs:
            (path / "evaluation").mkdir()
            (path / "evaluation" / OUTPUTS_FILE).write_text(outputs, encoding="utf-8")
        if evaluation.passages is not None:
            (path / "evaluation").mkdir(exist_ok=True)
            (path / "evaluation" / LOSSES_FILE).write_text(_json_lines(evaluation.passages.records()), encoding="utf-8")
        if objective.has_card:
            write_card(path, _facts(objective, recipe, folder, task, fitted, entries, samples, weaknesses, command))

    def write_evaluation(path: Path) -> None:
        (path / EVALUATION_FILE).write_text(_json(entries), encoding="utf-8")
        (path / OUTPUTS_FILE).write_text(outputs, encoding="utf-8")
        (path / "samples.jsonl").write_text(_json_lines(samples), encoding="utf-8")
        if evaluation.pairs:
            (path / PAIRS_FILE).write_text(_json_lines(evaluation.pairs), encoding="utf-8")
        if evaluation.passages is not None:
            (path / LOSSES_FILE).write_text(_json_lines(evaluation.passages.records()), encoding="utf-8")
            (path / PASSAGES_FILE).write_text(_json_lines(evaluation.passages.texts), encoding="utf-8")

    replace_folder(folder.model_path, write_model)
    replace_folder(folder.evaluation_path, write_evaluation)
    say(f"report: {write_report(folder.path)}")
    if recipe.run.push_to_hub:
        _publish(folder.model_path, recipe.run.push_to_hub)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _json_lines(records: Iterable[Any]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _facts(
    objective: Objective,
    recipe: Recipe[Any],
    folder: RunFolder,
    task: Task,
    fitted: FittedModel,
    entries: dict[str, dict[str, Any]],
    samples: Sequence[Sequence[str]],
    weaknesses: Weaknesses | None,
    command: str,
) -> ModelCardFacts:
    """What the card is made of."""
    metrics, sources, data = folder.metrics(), training_sources(recipe.data), vars(recipe.data)
    return ModelCardFacts(
        name=recipe.run.name,
        task=objective.hub_task,
        dataset=" and ".join(dict.fromkeys(source.title for source in sources)),
        hub_datasets=[source.hub for source in sources if source.hub],
        splits=[task.batches.facts(), *task.scoring.facts()],
        left_out=_left_out(folder),
        languages=[data[key] for key in ("source_language", "target_language", "language") if data.get(key)],
        license=recipe.run.license,
        base=json.loads(folder.base_path.read_text("utf-8")) if folder.base_path.is_file() else None,
        config=fitted.model.config.to_dict(),
        parameters=fitted.model.num_parameters(),
        recipe=recipe.yaml,
        command=command,
        seed=recipe.run.seed,
        hardware=", then ".join(dict.fromkeys(record["hardware"] for record in metrics if "hardware" in record)),
        minutes=fitted.progress.seconds / 60,
        versions={name: version(name) for name in ("paperformer", "torch", "transformers", "tokenizers", "sacrebleu")},
        validation_curve=[
            (record["step"], record["validation"]["loss"])
            for record in metrics
            if record.get("validation", {}).get("loss") is not None  # as it is where it was not finite
        ],
        evaluation=entries,
        samples=samples,
        domains=list(dict.fromkeys(domains_of_test(recipe.data))),
        weaknesses=weaknesses,
        joules=next((record["joules"] for record in reversed(metrics) if record.get("joules") is not None), None),
        energy_source=next((record["energy"] for record in reversed(metrics) if "energy" in record), ""),
    )


def _weaknesses(recipe: Recipe[Any], test: Evaluation) -> Weaknesses | None:
    """Where the model is worst on the test split; None where nothing is known of its parts."""
    if test.pairs:
        options = scoring_options(recipe.evaluation)
        return find_weaknesses(test.pairs, test.outputs, options, WORST_SENTENCES, test.domains, test.unseen_words)
    if test.domains and test.passages is not None:
        return Weaknesses(by_domain=score_domains_of_text(test.passages, test.domains))
    return None


def _left_out(folder: RunFolder) -> dict[str, int]:
    """Reason -> rows that were left out of the training text."""
    train = json.loads(folder.data_path.read_text("utf-8")).get("train")
    if train is None:  # a stream
        return {}
    left_out = Counter(train["cleaning"]["dropped"])
    for source in train["sources"]:
        left_out.update(source["bad_lines"])
    return dict(left_out)


def _publish(model_path: Path, repo_id: str) -> None:
    try:
        publication = upload.push(model_path, repo_id)
    except InputError as error:
        again = shlex.join(["paperformer", "push", str(model_path), repo_id])
        raise InputError(
            f"{model_path} is finished, and could not be published on {repo_id}: {error}; try again with: {again}"
        ) from error
    say(f"published: {publication.address} {publication.commit}")
