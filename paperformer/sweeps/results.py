"""What came of the runs of a sweep, and how rows compare."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..training.evaluation.evaluation_file import EVALUATION_FILE, read_scores
from ..training.reporting.comparison import read_run

State = Literal["waiting", "interrupted", "failed", "diverged", "finished"]

STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The 97.5 % quantiles of Student's distribution with 1, 2, ... degrees of freedom; of more, the last is a bit wide."""


@dataclass
class RunResult:
    """What is known of one run of a row."""

    seed: int
    folder: str
    state: State = "waiting"
    fields: dict[str, Any] = field(default_factory=dict)
    """In what its row differs from the others."""

    message: str = ""
    """Why it failed or diverged."""

    parameters: int | None = None
    steps: int = 0
    minutes: float = 0.0
    """Of training steps; where nothing was trained, of scoring."""

    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    """Split -> metric -> value."""

    at: dict[int, dict[str, float]] = field(default_factory=dict)
    """Context length -> metric -> value on the validation split."""

    def value(self, split: str, metric: str) -> float | None:
        """A score; None where there is none."""
        return self.scores.get(split, {}).get(metric)


def read_trained(folder: Path, seed: int) -> RunResult:
    """What the folder of a run tells, that need not be there."""
    result = RunResult(seed=seed, folder=str(folder))
    if not (folder / "recipe.yaml").is_file():
        return result
    run = read_run(folder)
    result.parameters, result.steps, result.minutes = run.parameters, run.step, run.seconds / 60
    result.state = "finished" if run.is_finished else "interrupted"
    if run.is_finished:
        evaluation = json.loads((folder / "evaluation" / EVALUATION_FILE).read_text("utf-8"))
        for score in read_scores(evaluation):
            result.scores.setdefault(score.split, {})[score.metric.name] = score.value
    return result


def read_results(path: Path) -> dict[tuple[str, int], RunResult]:
    """The results in a table.json by row and seed; none if there is no such file, or it is not ours."""
    try:
        rows = json.loads(path.read_text("utf-8"))["rows"]
        return {(row["name"], run["seed"]): _as_result(run) for row in rows for run in row["runs"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _as_result(record: Mapping[str, Any]) -> RunResult:
    return RunResult(**{**record, "at": {int(length): scores for length, scores in record["at"].items()}})


def as_record(result: RunResult) -> dict[str, Any]:
    """A result as plain values."""
    return asdict(result)


@dataclass(frozen=True)
class Spread:
    """A mean over seeds."""

    mean: float
    deviation: float | None
    """Standard deviation of a sample; None of a single one."""

    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """None of no values."""
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    @property
    def interval(self) -> float | None:
        """Half the width of the 95 % confidence interval of the mean, by Student's distribution; None of one value."""
        if self.deviation is None:
            return None
        return STUDENT[min(self.count - 1, len(STUDENT)) - 1] * self.deviation / math.sqrt(self.count)

    def shown(self, digits: int, sign: str = "") -> str:
        """The mean and the deviation."""
        spread = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.mean:{sign}.{digits}f}{spread}"


def compare(own: Mapping[int, float], others: Mapping[int, float]) -> Spread | None:
    """The differences of two rows, seed by seed: what a seed does to both of them cancels out.

    Args:
        own, others: seed -> score.
    """
    return Spread.of([own[seed] - others[seed] for seed in own if seed in others])
