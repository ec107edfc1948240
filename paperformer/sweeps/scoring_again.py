"""A finished run scored again by a recipe with other fields: at another context length, with another beam."""

from collections.abc import Mapping
from typing import Any

from ..api.recipes import objective_of, read_recipe
from ..api.runs import Run
from ..training.data.tokenizers import load_tokenizers


def score_again(run: Run, fields: Mapping[str, Any], split: str) -> dict[str, float]:
    """The scores of a run's model on a split, by metric, as training would compute them by the recipe.

    Args:
        run: a finished one.
        fields: of its recipe, that are to be others: evaluation.*, or data.context_length.
        split: validation or test.

    Raises:
        InputError: if the recipe cannot be so, or the text is not there any more.
    """
    recipe = read_recipe(run.folder / "recipe.yaml", fields)
    objective = objective_of(recipe)
    tokenizers = load_tokenizers(run.folder / "tokenizer")
    scoring = objective.make_task(recipe, objective.open_splits(recipe), tokenizers).scoring
    return {score.metric.name: score.value for score in scoring.evaluate(run.model, split).scores}
