"""All training objectives: a new one is one more entry."""

from collections.abc import Mapping
from typing import Any

from .language_modeling import LANGUAGE_MODELING
from .objective import Objective
from .translation import TRANSLATION

OBJECTIVES = {objective.name: objective for objective in (TRANSLATION, LANGUAGE_MODELING)}
"""By the name that they have on the command line."""


def objective_of_task(hub_task: str) -> Objective:
    """The objective of a task, by its name on the Hub.

    Raises:
        KeyError: if there is none.
    """
    return {objective.hub_task: objective for objective in OBJECTIVES.values()}[hub_task]


def objective_of_recipe(fields: Mapping[str, Any]) -> Objective | None:
    """The objective that a recipe is for, by the names of its fields (`data.source_language`)."""
    return next((objective for objective in OBJECTIVES.values() if objective.own_field in fields), None)
