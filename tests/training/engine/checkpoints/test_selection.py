from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from paperformer.training.console.input_error import InputError
from paperformer.training.engine.checkpoints.selection import (
    count_validations_without_improvement,
    find_steps_to_average,
    find_steps_to_keep,
    rank_steps,
)
from paperformer.training.evaluation.metrics import METRICS, Score
from paperformer.training.recipe.checkpoints import Checkpoints
from paperformer.training.recipe.data import TextData
from paperformer.training.recipe.evaluation import EvaluationOptions
from paperformer.training.recipe.recipe import Recipe

from ..conftest import Task, Train

Recipes = Callable[..., Recipe[TextData]]


def validation_scores(*scores: float, select_by: str = "loss") -> Callable[[Task], None]:
    """Makes a task return these validation scores, one after the other."""
    following = iter(scores)

    def change(task: Task) -> None:
        def validate(model: Any) -> list[Score]:
            values = {"loss": 0.0} | {select_by: next(following)}
            return [Score(metric=METRICS[name], value=value, count=1) for name, value in values.items()]

        task.scoring.validate = validate  # type: ignore[method-assign]

    return change


@pytest.mark.parametrize(
    ("scores", "chosen"), [((3.0, 1.0, 2.0), 4), ((3.0, 2.0, 1.0), 6), ((1.0, 1.0, 2.0), 2)], ids=str
)
def test_the_best_checkpoint_is_chosen(
    lm_recipe: Recipes, train: Train, scores: tuple[float, ...], chosen: int
) -> None:
    recipe = lm_recipe(evaluation__every_steps=2, checkpoints__keep_last=1)
    fitted, folder = train(recipe, change=validation_scores(*scores))
    kept = dict(folder.checkpoints())
    assert kept.keys() == {chosen, 6}  # the best and the last, and no other
    assert fitted.weights == f"step {chosen}"
    weights = load_file(kept[chosen] / "model.safetensors")
    for name, tensor in weights.items():
        assert torch.equal(fitted.model.state_dict()[name], tensor), name
    record = folder.metrics()[-1]
    assert (record["chosen"], record["select_by"]) == (f"step {chosen}", "loss")


def test_a_score_that_should_be_high(lm_recipe: Recipes, train: Train) -> None:
    recipe = lm_recipe(evaluation__every_steps=2)
    recipe.evaluation.select_by = "bleu"
    fitted, _ = train(recipe, change=validation_scores(3.0, 9.0, 2.0, select_by="bleu"))
    assert fitted.weights == "step 4"


@pytest.mark.parametrize(("mean_score", "is_chosen"), [(0.5, True), (9.0, False)])
def test_the_mean_of_the_last_checkpoints(lm_recipe: Recipes, train: Train, mean_score: float, is_chosen: bool) -> None:
    recipe = lm_recipe(evaluation__every_steps=1, evaluation__average_checkpoints=3, evaluation__validation_samples=0)
    fitted, folder = train(recipe, change=validation_scores(1.0, 5.0, 4.0, 3.0, 2.0, 2.0, mean_score))
    kept = dict(folder.checkpoints())
    assert kept.keys() == {1, 4, 5, 6}  # the best and the last three
    assert fitted.weights == ("mean of steps 4, 5, 6" if is_chosen else "step 1")
    sources = [load_file(kept[step] / "model.safetensors") for step in ((4, 5, 6) if is_chosen else (1,))]
    for name in sources[0]:
        mean = torch.stack([source[name].double() for source in sources]).mean(0)
        torch.testing.assert_close(fitted.model.state_dict()[name].double(), mean, rtol=1e-6, atol=1e-8)
    assert fitted.model.lm_head.weight is fitted.model.model.embed_tokens.weight


def test_the_mean_of_the_best_checkpoints(lm_recipe: Recipes, train: Train) -> None:
    recipe = lm_recipe(
        evaluation__every_steps=1,
        evaluation__average_checkpoints=2,
        evaluation__average="best",
        checkpoints__keep_last=1,
    )
    fitted, folder = train(recipe, change=validation_scores(6.0, 2.0, 5.0, 1.0, 4.0, 3.0, 0.5))
    assert [step for step, _ in folder.checkpoints()] == [2, 4, 6]
    assert fitted.weights == "mean of steps 2, 4"


def test_checkpoints_between_validations(lm_recipe: Recipes, train: Train) -> None:
    recipe = lm_recipe(evaluation__every_steps=6, checkpoints__every_steps=2, checkpoints__keep_last=3)
    _, folder = train(recipe)
    assert [step for step, _ in folder.checkpoints()] == [2, 4, 6]
    assert [record["step"] for record in folder.metrics() if "validation" in record] == [6]


def test_a_run_stops_when_its_score_no_longer_improves(
    lm_recipe: Recipes, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"evaluation__every_steps": 1, "evaluation__patience": 2, "optimization__max_steps": 20}
    fitted, _ = train(lm_recipe(**options), change=validation_scores(3.0, 1.0, 2.0, 1.5))
    assert fitted.progress.step == 4
    assert fitted.weights == "step 2"
    assert "stopped early at step 4: no better loss in 2 validations" in capsys.readouterr().err
    again, _ = train(lm_recipe(**options, resume=True))  # the patience is part of the state
    assert (again.progress.step, again.weights) == (4, "step 2")


SCORES = st.lists(st.floats(0, 10), max_size=12)


def by_step(values: list[float], name: str = "loss") -> dict[int, dict[str, float]]:
    return {10 * index: {name: value} for index, value in enumerate(values, 1)}


@given(SCORES, st.sampled_from(["loss", "bleu"]), st.floats(0, 2))
def test_patience_counts_from_the_last_improvement(values: list[float], name: Any, least: float) -> None:
    options = EvaluationOptions(select_by=name, min_improvement=least)
    sign = 1 if name == "loss" else -1
    best = since = None
    for value in values:
        if best is None or sign * value < best - least:
            best, since = sign * value, 0
        else:
            since += 1
    assert count_validations_without_improvement(by_step(values, name), options) == (since or 0)


@given(SCORES, st.integers(0, 4), st.sampled_from(["last", "best"]), st.integers(1, 3))
def test_what_is_averaged_is_kept(values: list[float], count: int, average: Any, keep_last: int) -> None:
    scores = by_step(values)
    options = EvaluationOptions(average_checkpoints=count, average=average)
    chosen = find_steps_to_average(scores, options)
    assert chosen == sorted(chosen)
    assert len(chosen) == (min(count, len(values)) if count > 1 else 0)
    if average == "best" and chosen:
        others = [scores[step]["loss"] for step in scores if step not in chosen]
        assert max(scores[step]["loss"] for step in chosen) <= min(others, default=10.0)
    elif chosen:
        assert chosen[-1] == max(scores)
    steps = [*scores, 1000, 1001, 1002]
    keep = find_steps_to_keep(steps, scores, options, Checkpoints(keep_last=keep_last))
    assert keep == {*chosen, *sorted(steps)[-keep_last:], *rank_steps(scores, options)[:1]}


def test_a_score_that_was_not_taken_then_is_no_candidate() -> None:
    scores = {1: {"loss": 2.0}, 2: {"loss": 3.0, "bleu": 20.0}, 3: {"loss": 3.0, "bleu": 10.0}}
    assert rank_steps(scores, EvaluationOptions(select_by="bleu")) == [2, 3]
    assert rank_steps(scores, EvaluationOptions(select_by="loss")) == [1, 2, 3]


def test_a_finished_run_that_is_to_be_chosen_by_another_score(lm_recipe: Recipes, train: Train) -> None:
    train(lm_recipe())
    recipe = lm_recipe(resume=True)
    recipe.evaluation.select_by = "bleu"
    with pytest.raises(
        InputError, match=r"evaluation.select_by is bleu, a score that no checkpoint of the run has; resume"
    ):
        train(recipe)


def test_a_score_that_is_no_number_is_the_worst() -> None:
    scores = {step: {"loss": loss} for step, loss in enumerate([2.0, float("nan"), 1.0, float("nan"), 3.0])}
    assert rank_steps(scores, EvaluationOptions()) == [2, 0, 4, 1, 3]
    assert count_validations_without_improvement(scores, EvaluationOptions()) == 2
