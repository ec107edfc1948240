import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paperformer import PaperformerForCausalLM
from paperformer.training.engine import loop
from paperformer.training.engine.guard import LossGuard, TrainingDivergedError, Verdict
from paperformer.training.recipe.data import TextData
from paperformer.training.recipe.guard import Guard
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.reporting import recorder

from .conftest import Task, Train, figures

Recipes = Callable[..., Recipe[TextData]]


def guard_with(losses: list[float], **options: Any) -> LossGuard:
    guard = LossGuard(Guard(window=len(losses), **options))
    for step, loss in enumerate(losses):
        assert guard.judge(step, loss, 1.0) is None
    return guard


def test_a_spike_is_what_lies_far_above_the_last_losses() -> None:
    losses = [2.0, 3.0] * 8  # mean 2.5, sample standard deviation 0.5164
    limit = 2.5 + 4 * math.sqrt(16 * 0.25 / 15)
    assert guard_with(losses, spike="skip", spike_threshold=4).judge(20, limit - 1e-6, 1.0) is None
    verdict = guard_with(losses, spike="skip", spike_threshold=4).judge(20, limit + 1e-6, 1.0)
    assert verdict is not None
    assert (verdict.event, verdict.action) == ("spike", "skip")
    assert f"is above {limit:.3f}, far from the mean of the last 16 steps" in verdict.reason
    assert guard_with(losses, spike="skip").judge(20, 0.0, 1.0) is None  # far below is no harm
    assert guard_with(losses, spike="ignore").judge(20, 1e9, 1.0) is None


def test_there_is_no_spike_before_there_is_a_window() -> None:
    guard = LossGuard(Guard(window=8, spike="stop"))
    assert [guard.judge(step, loss, 1.0) for step, loss in enumerate([1.0] * 7 + [100.0])] == [None] * 8


def test_a_small_rise_is_no_spike() -> None:
    assert guard_with([2.0] * 10, spike="stop").judge(11, 2.99, 1.0) is None
    assert guard_with([2.0] * 10, spike="stop").judge(11, 3.01, 1.0) is not None
    assert guard_with([2.0] * 10, spike="stop", spike_rise=0.1).judge(11, 2.11, 1.0) is not None


def test_a_skipped_loss_does_not_become_normal_and_a_followed_one_does() -> None:
    skipping, warning = (guard_with([1.0] * 8, spike=action) for action in ("skip", "warn"))
    for step in range(8):
        assert skipping.judge(step, 9.0, 1.0) is not None
        warning.judge(step, 9.0, 1.0)
    assert warning.judge(9, 9.0, 1.0) is None
    assert skipping.judge(9, 9.0, 1.0) is not None


@given(st.sampled_from([math.nan, math.inf, -math.inf]), st.booleans())
def test_what_is_not_finite_is_found_at_once(value: float, in_loss: bool) -> None:
    guard = LossGuard(Guard(non_finite="skip"))
    verdict = guard.judge(1, value, 1.0) if in_loss else guard.judge(1, 1.0, value)
    assert verdict is not None
    assert (verdict.event, verdict.action) == ("non_finite", "skip")
    assert verdict.reason == f"the {'loss' if in_loss else 'gradient'} is not finite"


def test_too_many_interventions_stop_the_run() -> None:
    guard = LossGuard(Guard(non_finite="skip", max_interventions=2, window=10))
    actions = []
    for step in (1, 2, 13, 14, 15):
        verdict = guard.judge(step, math.nan, 1.0)
        assert verdict is not None
        actions.append(verdict.action)
    assert actions == ["skip", "skip", "skip", "skip", "stop"]
    assert verdict.reason == "the loss is not finite, and there were 2 interventions within 10 steps"


@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.integers(0, 30))
def test_a_saved_guard_judges_on(losses: list[float], cut: int) -> None:
    options = Guard(window=8, spike="skip", spike_threshold=1.0, spike_rise=0.1)
    whole = LossGuard(options)
    expected = [whole.judge(step, loss, 1.0) for step, loss in enumerate(losses)]
    first, second = LossGuard(options), LossGuard(options)
    found = [first.judge(step, loss, 1.0) for step, loss in enumerate(losses[:cut])]
    second.load_state_dict(first.state_dict())
    found += [second.judge(step, loss, 1.0) for step, loss in enumerate(losses[cut:], start=len(losses[:cut]))]
    assert found == expected


@pytest.fixture
def no_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the first backward pass is the first step's."""
    monkeypatch.setattr("paperformer.training.engine.step.dry_run", lambda *_: 1)


POISONED = "model.layers.0.self_attn.o_proj.weight"


def poison_gradient(*calls: int, value: float = math.nan) -> Callable[[Task], None]:
    """Makes the gradient of a parameter useless in the given backward passes, counted from 1."""

    def change(task: Task) -> None:
        build = task.build_model

        def build_poisoned() -> PaperformerForCausalLM:
            model = build()
            count = iter(range(1, 1000))
            model.get_parameter(POISONED).register_hook(lambda grad: grad * value if next(count) in calls else grad)
            return model

        task.build_model = build_poisoned  # type: ignore[method-assign]

    return change


def weights_at_steps(change: Callable[[Task], None], seen: list[dict[str, torch.Tensor]]) -> Callable[[Task], None]:
    """Remembers the weights before each batch is made."""

    def also(task: Task) -> None:
        change(task)
        build, collate = task.build_model, task.batches.collate
        models: list[Any] = []

        def build_and_keep() -> Any:
            models.append(build())
            return models[-1]

        def look(batch: Any) -> Any:
            seen.append({name: p.detach().clone() for name, p in models[0].named_parameters()})
            return collate(batch)

        task.build_model, task.batches.collate = build_and_keep, look  # type: ignore[method-assign]

    return also


def are_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.usefixtures("no_dry_run")
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_stops_before_the_step(lm_recipe: Recipes, train: Train, value: float) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    recipe = lm_recipe(checkpoints__every_steps=2)
    with pytest.raises(TrainingDivergedError, match=rf"step 3: the gradient is not finite, at batch .* {POISONED}; "):
        train(recipe, change=weights_at_steps(poison_gradient(3, value=value), seen))
    assert len(seen) >= 3
    assert not are_equal(seen[-2], seen[-1])


@pytest.mark.usefixtures("no_dry_run")
def test_a_step_is_skipped(lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    seen: list[dict[str, torch.Tensor]] = []
    _, folder = train(lm_recipe(guard__non_finite="skip"), change=weights_at_steps(poison_gradient(3), seen))
    *_, before_third, after_third, _, _ = seen
    assert are_equal(before_third, after_third)
    assert sum(are_equal(a, b) for a, b in zip(seen[1:], seen[:-1], strict=True)) == 1
    (event,) = [record for record in folder.metrics() if "event" in record]
    assert (event["step"], event["action"], event["parameter"]) == (3, "skip", POISONED)
    assert event["batch"] == {"epoch": 0, "pool": 0, "index": 2}
    assert [record["step"] for record in folder.metrics() if "learning_rate" in record] == [1, 2, 3, 4, 5, 6]


def test_a_skipped_step_counts_in_no_figure_and_what_is_not_finite_is_null(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: list[float] = []
    add = loop.add_gradients

    def add_gradients(*arguments: Any) -> float:
        loss = add(*arguments)
        losses.append(math.nan if len(losses) in (2, 3, 4) else loss)
        return losses[-1]

    monkeypatch.setattr(recorder, "LOG_EVERY", 2)
    monkeypatch.setattr(loop, "add_gradients", add_gradients)
    fitted, folder = train(lm_recipe(guard__non_finite="skip", evaluation__every_steps=6))
    text = folder.metrics_path.read_text("utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text
    lines = [record for record in folder.metrics() if "learning_rate" in record]
    assert [line["loss"] for line in lines] == [(losses[0] + losses[1]) / 2, None, losses[5]]
    assert [line["flops"] > 0 for line in lines] == [True, False, True]
    assert [line["tokens_per_second"] > 0 for line in lines] == [True, False, True]
    assert fitted.progress.flops == sum(line["flops"] for line in lines)


@pytest.mark.usefixtures("no_dry_run")
def test_a_run_rolls_back_and_leaves_the_bad_batches_out(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    seen: list[dict[str, torch.Tensor]] = []
    positions: list[Any] = []

    def watch(task: Task) -> None:
        weights_at_steps(poison_gradient(5), seen)(task)
        collate = task.batches.collate
        task.batches.collate = lambda batch: positions.append(batch) or collate(batch)  # type: ignore

    recipe = lm_recipe(guard__non_finite="roll_back", evaluation__every_steps=3, optimization__max_steps=7)
    _, folder = train(recipe, change=watch)
    (event,) = [record for record in folder.metrics() if "event" in record]
    assert (event["step"], event["at_step"], event["action"]) == (3, 5, "roll_back")
    assert [record["step"] for record in folder.metrics() if "learning_rate" in record] == list(range(1, 8))
    # Steps 1 to 5, of which the fifth failed, then 4 to 7: nine batches, none twice, and the sixth starts from step 3.
    steps = seen[-9:]
    assert are_equal(steps[5], steps[3])
    batches = [str(batch) for batch in positions[-9:]]
    assert len(set(batches)) == 9


@pytest.mark.usefixtures("no_dry_run")
def test_a_run_can_roll_back_to_its_start(lm_recipe: Recipes, train: Train) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    recipe = lm_recipe(guard__non_finite="roll_back")
    _, folder = train(recipe, change=weights_at_steps(poison_gradient(2), seen))
    (event,) = [record for record in folder.metrics() if "event" in record]
    assert (event["step"], event["at_step"]) == (0, 2)
    assert are_equal(seen[-6], seen[-8])


@pytest.mark.usefixtures("no_dry_run")
def test_a_killed_run_rolls_back_as_the_whole_one_did(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    options = {"guard__non_finite": "roll_back", "optimization__max_steps": 9, "model__dropout": 0.2}
    _, whole = train(lm_recipe(**options, output_dir=tmp_path / "whole"), change=poison_gradient(5))

    def crash(task: Task) -> None:
        poison_gradient(5)(task)
        collate, calls = task.batches.collate, iter(range(1, 100))
        task.batches.collate = lambda batch: collate(batch) if next(calls) < 8 else 1 / 0  # type: ignore

    with pytest.raises(ZeroDivisionError):
        train(lm_recipe(**options), change=crash)
    # The checkpoint of step 3 was written again, so that the bad batches are left out for good.
    _, folder = train(lm_recipe(**options, resume=True))
    assert figures(folder) == figures(whole)


@pytest.mark.parametrize(("pool", "place"), [(0, "batch 7 of epoch 2"), (3, "batch 7 of epoch 2, pool 3")])
def test_a_verdict_says_where_it_was(pool: int, place: str) -> None:
    said = Verdict("spike", "warn", "the loss is high").in_words({"epoch": 2, "pool": pool, "index": 7}, "norm.weight")
    assert said == f"the loss is high, at {place} and most in norm.weight"
