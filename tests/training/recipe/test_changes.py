from collections.abc import Callable
from typing import Any

import pytest
import yaml

from paperformer.training.console.input_error import InputError
from paperformer.training.recipe.changes import Change, check_changes, what_makes_batches
from paperformer.training.recipe.data import TextData
from paperformer.training.recipe.recipe import Recipe

Recipes = Callable[..., Recipe[TextData]]


def test_what_may_change_is_listed(lm_recipe: Recipes) -> None:
    before = lm_recipe().yaml
    now = lm_recipe(optimization__learning_rate=0.5, model__dropout=0.3, data__workers=2, evaluation__patience=3).yaml
    assert set(check_changes("runs/x", before, now)) == {
        Change("optimization.learning_rate", 0.01, 0.5),
        Change("model.dropout", 0.1, 0.3),
        Change("data.workers", 0, 2),
        Change("evaluation.patience", 0, 3),
    }
    assert check_changes("runs/x", before, before) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 2}, "the run runs/x was begun with seed 1, and this recipe has 2; resume it with the same, or"),
        ({"optimization__optimizer": "muon"}, "optimization.optimizer adamw, and this recipe has muon"),
        ({"model__hidden_size": 32}, "model.hidden_size 16, and this recipe has 32"),
        ({"tokenizer__vocab_size": 301}, "tokenizer.vocab_size 300, and this recipe has 301"),
    ],
)
def test_what_cannot_change_is_refused(lm_recipe: Recipes, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_changes("runs/x", lm_recipe().yaml, lm_recipe(**changes).yaml)


def test_what_the_averages_of_a_schedule_free_optimizer_follow_from_cannot_change(lm_recipe: Recipes) -> None:
    changes: dict[str, Any] = {"optimization__adam_beta1": 0.8}
    assert len(check_changes("runs/x", lm_recipe().yaml, lm_recipe(**changes).yaml)) == 1
    free = {"optimization__optimizer": "schedule_free", "optimization__schedule": "constant"}
    with pytest.raises(InputError, match=r"optimization\.adam_beta1 0\.9, and this recipe has 0\.8"):
        check_changes("runs/x", lm_recipe(**free).yaml, lm_recipe(**free, **changes).yaml)


def test_a_recipe_of_an_earlier_version_lacks_what_has_its_default(lm_recipe: Recipes) -> None:
    before = yaml.safe_load(lm_recipe().yaml)
    del before["guard"], before["optimization"]["optimizer"]
    assert check_changes("runs/x", yaml.safe_dump(before), lm_recipe().yaml) == []


@pytest.mark.parametrize(
    ("changes", "makes_batches"),
    [
        ({"data__context_length": 8}, True),
        ({"optimization__tokens_per_batch": 32}, True),
        ({"cleaning__duplicates": "exact"}, True),
        ({"data__workers": 2}, False),
        ({"data__cache_dir": "elsewhere"}, False),
        ({"optimization__accumulation_steps": 2}, False),
        ({"evaluation__patience": 2}, False),
    ],
)
def test_what_the_batches_depend_on(lm_recipe: Recipes, changes: dict[str, Any], makes_batches: bool) -> None:
    before, now = (what_makes_batches(recipe.yaml) for recipe in (lm_recipe(), lm_recipe(**changes)))
    assert (before != now) == makes_batches
