"""All training objectives: a new one is one more entry."""

from collections.abc import Mapping
from typing import Any

from .denoising import DENOISING
from .language_modeling import LANGUAGE_MODELING
from .masked_language_modeling import MASKED_LANGUAGE_MODELING
from .objective import Objective
from .translation import TRANSLATION

OBJECTIVES = {
    objective.name: objective for objective in (TRANSLATION, LANGUAGE_MODELING, MASKED_LANGUAGE_MODELING, DENOISING)
}
"""By the name that they have on the command line."""


def objective_of_task(hub_task: str) -> Objective:
    """The objective of a task, by its name on the Hub.

    Raises:
        KeyError: if there is none.
    """
    return {objective.hub_task: objective for objective in OBJECTIVES.values()}[hub_task]


def objective_of_recipe(fields: Mapping[str, Any]) -> Objective | None:
    """The objective that a recipe is for, None if it does not say; older ones are known by their data.

    Args:
        fields: name -> value of the recipe's fields, such as `objective` and `data.source_language`.
    """
    if fields.get("objective") is None:
        older = {"data.source_language": TRANSLATION, "data.language": LANGUAGE_MODELING}
        return next((objective for field, objective in older.items() if field in fields), None)
    return OBJECTIVES.get(str(fields["objective"]))
