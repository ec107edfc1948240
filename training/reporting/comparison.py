"""What the folders of runs tell: how far each has come, how well it does, and in what their recipes differ."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError, safe_open

from ..evaluation.evaluation_file import EVALUATION_FILE, read_scores
from ..evaluation.metrics import LOSS, METRICS, Metric, Score
from ..recipe.parsing import recipe_parser
from ..recipe.run import RunOptions
from ..run_folder import RunFolder
from ..tasks.registry import objective_of_recipe

_NOT_COMPARED = {"objective", "name", "output_dir", "data.workers", "data.cache_dir"}
"""Fields of a recipe that do not change what its run computes."""

_TEXT = {"data.dataset", "data.config", "data.source_language", "data.target_language", "data.language"}
"""Fields that say, with the split's own, on what text a run is scored."""

DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)
"""What reading a file raises that is not as a run writes it."""


@dataclass(kw_only=True)
class RunRecord:
    """What is known of a run; of a folder that is none, or is damaged, only its `problem`."""

    name: str
    path: Path
    changed: datetime
    """When it last wrote."""

    problem: str | None = None
    """What is wrong with the folder, in words."""

    recipe: dict[str, Any] = field(default_factory=dict)
    """Value by field: `data.max_length`."""

    step: int = 0
    is_finished: bool = False
    """Whether its model is written, and no step was made since."""

    hardware: list[str] = field(default_factory=list)
    """What it computed on: of each start, if they differ."""

    seconds: float = 0.0
    """Time spent on training steps."""

    tokens_per_second: float | None = None
    """Target tokens; the median of all lines of metrics.jsonl."""

    utilisation: float | None = None
    """Model FLOPs utilisation, over all lines that have it."""

    joules: float | None = None
    energy_source: str | None = None
    validation: dict[int, dict[str, float]] = field(default_factory=dict)
    """Scores on the validation split by step."""

    chosen: str | None = None
    """Which weights the final model has."""

    chosen_score: float | None = None
    """Their validation score, `select_by`."""

    events: list[dict[str, Any]] = field(default_factory=list)
    """Loss spikes and gradients that were not finite."""

    test: list[Score] = field(default_factory=list)
    parameters: int | None = None

    @property
    def task(self) -> str:
        """Its name on the Hub (`translation`); empty if that is not known."""
        objective = objective_of_recipe(self.recipe)
        return objective.hub_task if objective else ""

    @property
    def select_by(self) -> str:
        """The validation score by which the final weights are chosen."""
        return self.recipe["evaluation.select_by"]

    @property
    def state(self) -> str:
        """How far it has come. Whether something is running does not show in its folder."""
        if self.problem:
            return self.problem
        if self.is_finished:
            return f"finished, {self.step:,}"
        return f"{self.step:,} of {self.recipe['optimization.max_steps']:,}" if self.step else "prepared"

    @property
    def best(self) -> float | None:
        """The validation score of the chosen weights, or as long as there are none, the best so far."""
        if self.chosen_score is not None:
            return self.chosen_score
        step = self.best_step
        return None if step is None else self.validation[step][self.select_by]

    @property
    def best_step(self) -> int | None:
        """The step of the best validation score; of equal ones the first."""
        steps = steps_by_score(self)
        return steps[0] if steps else None


def steps_by_score(run: RunRecord) -> list[int]:
    """The validated steps of a run, the best first; those whose score is not finite are left out."""
    if not run.validation:
        return []
    name, cost = run.select_by, METRICS[run.select_by].cost
    scores = {step: cost(scores[name]) for step, scores in run.validation.items() if math.isfinite(scores[name])}
    return sorted(scores, key=lambda step: (scores[step], step))


def list_runs(output_dir: Path) -> list[RunRecord]:
    """All runs of a folder, the newest first; other folders in it have a `problem`."""
    folders = [path for path in output_dir.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(map(read_run, folders), key=lambda run: run.changed, reverse=True)


def read_run(path: Path) -> RunRecord:
    """What a run's folder tells; it may be damaged, or no run's at all."""
    folder = RunFolder(RunOptions(name=path.resolve().name, output_dir=str(path.resolve().parent)))
    changed = datetime.fromtimestamp(path.stat().st_mtime)
    run = RunRecord(name=folder.options.name, path=path, changed=changed)
    file = folder.path
    try:
        if not folder.recipe_path.exists():
            return replace(run, problem="holds runs" if any(path.glob("*/recipe.yaml")) else "not a run")
        for file, read in (
            (folder.recipe_path, _read_recipe),
            (folder.metrics_path, _read_metrics),
            (folder.evaluation_path / EVALUATION_FILE, _read_evaluation),
        ):
            if file.exists():
                read(run, folder)
        wrote = folder.metrics_path if folder.metrics_path.exists() else folder.recipe_path
        return replace(run, changed=datetime.fromtimestamp(wrote.stat().st_mtime), parameters=_count_parameters(folder))
    except PermissionError:
        problem = "unreadable"
    except DAMAGE:
        problem = f"damaged {file.name}"
    return RunRecord(name=run.name, path=path, changed=changed, problem=problem)


@dataclass(frozen=True)
class ScoreRow:
    """One score of several runs."""

    split: str
    metric: Metric
    digits: int
    """Decimals to show."""

    values: Sequence[float | None]
    """Of each run; None where it has none."""

    is_comparable: bool
    """Whether those that there are were measured on the same text, in the same way."""

    @property
    def best(self) -> float | None:
        """The best of several comparable values."""
        known = [value for value in self.values if value is not None and math.isfinite(value)]
        if len(known) < 2 or not self.is_comparable:
            return None
        return min(known, key=self.metric.cost)


def score_rows(runs: Sequence[RunRecord]) -> list[ScoreRow]:
    """The validation scores by which runs chose their weights, and their scores on the test split.

    Runs compare by the same metric on the same split of the same data; by a loss in nats a token only if they have the
    same tokens: on validation, of which no count is recorded, that is if they clean and tokenise the same text alike.
    """
    rows = []
    for name in dict.fromkeys(run.select_by for run in runs):
        chosen = [run.best if run.select_by == name else None for run in runs]
        those = [run for run, value in zip(runs, chosen, strict=True) if value is not None]
        same = _agree(those, _TEXT | {"data.validation"})
        if name == LOSS.name:
            same &= not any(field.startswith(("data.", "cleaning.", "tokenizer.")) for field in differing_fields(those))
        rows.append(ScoreRow("validation", METRICS[name], 4, chosen, same))
    for metric in (metric for metric in METRICS.values() if any(s.metric == metric for run in runs for s in run.test)):
        scores = [next((score for score in run.test if score.metric == metric), None) for run in runs]
        there = [(run, score) for run, score in zip(runs, scores, strict=True) if score]
        same = len({score.basis for _, score in there}) == 1 and _agree(
            [run for run, _ in there], _TEXT | {"data.test"}
        )
        rows.append(ScoreRow("test", metric, metric.digits, [score.value if score else None for score in scores], same))
    return rows


def _agree(runs: Sequence[RunRecord], names: set[str]) -> bool:
    return not names.intersection(differing_fields(runs))


def differing_fields(runs: Sequence[RunRecord]) -> list[str]:
    """The fields in which the recipes of runs differ; one that a recipe lacks counts as null."""
    names = dict.fromkeys(name for run in runs for name in run.recipe if name not in _NOT_COMPARED)
    return [name for name in names if any(run.recipe.get(name) != runs[0].recipe.get(name) for run in runs)]


def changed_fields(run: RunRecord) -> dict[str, Any]:
    """The fields of a run's recipe that are not at their defaults."""
    objective = objective_of_recipe(run.recipe)
    parser = recipe_parser(objective.family.config, objective.data) if objective else None
    defaults = flatten_recipe(parser.parser.get_defaults().as_dict()) if parser else {}
    return {
        name: value for name, value in run.recipe.items() if name not in _NOT_COMPARED and value != defaults.get(name)
    }


def flatten_recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    """The fields of a recipe by the names that they have on the command line; its sections are mappings."""
    fields: dict[str, Any] = {}
    for name, value in recipe.items():
        fields |= {f"{name}.{inner}": of for inner, of in value.items()} if isinstance(value, dict) else {name: value}
    return fields


def _read_recipe(run: RunRecord, folder: RunFolder) -> None:
    run.recipe = flatten_recipe(yaml.safe_load(folder.recipe_path.read_text("utf-8")))
    int(run.recipe["optimization.max_steps"]), METRICS[run.select_by]  # what no recipe lacks


def _read_metrics(run: RunRecord, folder: RunFolder) -> None:
    records = folder.metrics()
    run.step = max((int(record["step"]) for record in records), default=0)
    run.seconds = max((float(record["seconds"]) for record in records if "seconds" in record), default=0.0)
    run.hardware = list(dict.fromkeys(record["hardware"] for record in records if "hardware" in record))
    speeds = [float(record["tokens_per_second"]) for record in records if "tokens_per_second" in record]
    run.tokens_per_second = statistics.median(speeds) if speeds else None
    run.utilisation = _utilisation(records)
    run.validation = {
        record["step"]: {name: _number(score) for name, score in record["validation"].items()}
        for record in records
        if "validation" in record
    }
    for scores in run.validation.values():
        scores[run.select_by]  # which none lacks
    run.events = [record for record in records if "event" in record]
    for record in records:
        run.joules = record.get("joules", run.joules)
        run.energy_source = record.get("energy", run.energy_source)
    choices = [index for index, record in enumerate(records) if "chosen" in record]
    if choices and not any({"hardware", "loss", "validation"} & record.keys() for record in records[choices[-1] :]):
        choice = records[choices[-1]]
        run.chosen, run.chosen_score = choice["chosen"], _number(choice["candidates"][choice["chosen"]])
        run.is_finished = folder.model_path.is_dir()


def _number(value: Any) -> float:
    """A number of metrics.jsonl, which has null for what is not finite."""
    return math.nan if value is None else float(value)


def _utilisation(records: Iterable[dict[str, Any]]) -> float | None:
    """FLOPs of all lines over what could have been computed in their time, which is FLOPs / utilisation of each."""
    lines = [(record["flops"], record["utilisation"]) for record in records if record.get("utilisation")]
    return sum(flops for flops, _ in lines) / sum(flops / share for flops, share in lines) if lines else None


def _read_evaluation(run: RunRecord, folder: RunFolder) -> None:
    if run.is_finished:
        evaluation = json.loads((folder.evaluation_path / EVALUATION_FILE).read_text("utf-8"))
        run.test = [score for score in read_scores(evaluation) if score.split == "test"]


def _count_parameters(folder: RunFolder) -> int | None:
    """Read off the head of a file of weights, which has tied ones once."""
    for path in (folder.model_path, *(path for _, path in folder.checkpoints())):
        try:
            with safe_open(path / "model.safetensors", framework="numpy") as weights:
                return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
        except (OSError, SafetensorError):
            continue
    return None
