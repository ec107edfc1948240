"""Which weights a run ends with, which checkpoints that takes, and when it is no use to go on."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...console.input_error import InputError
from ...evaluation.metrics import METRICS
from ...recipe.checkpoints import Checkpoints
from ...recipe.evaluation import EvaluationOptions
from .snapshot import AVERAGE, WEIGHTS

Scores = dict[int, dict[str, float]]
"""Validation scores by step."""


def compute_costs(scores: Scores, options: EvaluationOptions) -> dict[int, float]:
    """The score to select by of each step, ascending, as what is to be small; NaN, which is no order, as infinite."""
    name, cost = options.select_by, METRICS[options.select_by].cost
    found = {step: cost(scores[step][name]) for step in sorted(scores) if name in scores[step]}
    return {step: math.inf if math.isnan(value) else value for step, value in found.items()}


def rank_steps(scores: Scores, options: EvaluationOptions) -> list[int]:
    """Steps from the best score to the worst; of equal ones the earlier first."""
    found = compute_costs(scores, options)
    return sorted(found, key=lambda step: found[step])


def find_steps_to_average(scores: Scores, options: EvaluationOptions) -> list[int]:
    """Steps of the checkpoints that are averaged, ascending; empty without averaging."""
    count = options.average_checkpoints if options.average_checkpoints > 1 else 0
    order = (
        rank_steps(scores, options)
        if options.average == "best"
        else sorted(compute_costs(scores, options), reverse=True)
    )
    return sorted(order[:count])


def find_steps_to_keep(
    steps: Iterable[int], scores: Scores, evaluation: EvaluationOptions, checkpoints: Checkpoints
) -> set[int]:
    """Of the steps that have a checkpoint, those whose checkpoint is still of use."""
    newest = sorted(steps)[-checkpoints.keep_last :]
    return {*newest, *rank_steps(scores, evaluation)[:1], *find_steps_to_average(scores, evaluation)}


def count_validations_without_improvement(scores: Scores, options: EvaluationOptions) -> int:
    """How many validations there were since the last that was better than all before by `min_improvement`."""
    best, since = math.inf, 0
    for cost in compute_costs(scores, options).values():
        best, since = (cost, 0) if cost < best - options.min_improvement else (best, since + 1)
    return since


def find_weights_file(checkpoint: Path) -> Path:
    """The weights of a checkpoint that were validated: their average, where there is one."""
    return checkpoint / AVERAGE if (checkpoint / AVERAGE).exists() else checkpoint / WEIGHTS


class Choice(NamedTuple):
    """Weights to end with."""

    name: str
    scores: dict[str, float]
    """Of all candidates, by their names."""


def choose_weights(
    checkpoints: Mapping[int, Path],
    scores: Scores,
    options: EvaluationOptions,
    put_mean: Callable[[Sequence[Path]], None],
    validate: Callable[[], float],
) -> Choice:
    """Leaves the better of two candidates in a model, the best checkpoint or the mean of several, and names it.

    Args:
        checkpoints: of the run, by step.
        scores: of the validated steps.
        options: by which score, and which mean.
        put_mean: sets the model's weights to the mean of those in some files.
        validate: the model's score on the validation split.

    Raises:
        InputError: if no checkpoint has the score, because the recipe of its validation asked for another.
    """
    kept = {step: score for step, score in scores.items() if step in checkpoints}
    if not (order := rank_steps(kept, options)):
        raise InputError(
            f"evaluation.select_by is {options.select_by}, a score that no checkpoint of the run has; resume it with "
            "the one before, or with a greater optimization.max_steps"
        )
    best = order[0]
    candidates = {f"step {best}": [best]}
    found = {f"step {best}": scores[best][options.select_by]}
    if len(steps := find_steps_to_average(kept, options)) > 1:
        mean = f"mean of steps {', '.join(map(str, steps))}"
        candidates[mean] = steps
        put_mean([find_weights_file(checkpoints[step]) for step in steps])
        found[mean] = validate()
    cost = METRICS[options.select_by].cost
    chosen = min(found, key=lambda name: cost(found[name]))  # of equal ones the first
    put_mean([find_weights_file(checkpoints[step]) for step in candidates[chosen]])
    return Choice(chosen, found)
