"""Preparing data from Python."""

from typing import Any, Literal

from ..bulk import PREPARATION_SHARD_LINES
from ..bulk.on_ray import prepare_on_ray
from ..training import prepare as preparation
from ..training.console.input_error import InputError
from ..training.console.progress import say
from ..training.prepare import Prepared
from ..training.run import make_quiet
from .recipes import Fields, GivenRecipe, objective_of, read_recipe


def prepare(
    recipe: GivenRecipe = None,
    overrides: Fields | None = None,
    *,
    on: Literal["ray"] | None = None,
    processes: int = 0,
    shard_lines: int = PREPARATION_SHARD_LINES,
    **fields: Any,
) -> Prepared:
    """All that a run does before its first step, which is cached for it; a report is said on standard error.

    Args:
        recipe, overrides, fields: as `read_recipe` takes them.
        on: "ray" divides the work among the machines of a Ray cluster; the result is the same to the byte.
        processes: on a cluster, how many work; 0: one for each processor.
        shard_lines: on a cluster, lines that are worked on as one.

    Raises:
        InputError: as `train` does; also if Ray is not installed, or `on` is something else.
    """
    if on not in (None, "ray"):
        raise InputError(f"on is {on!r}; it must be 'ray', or None for this process alone")
    given = read_recipe(recipe, overrides, **fields)
    make_quiet()
    division = prepare_on_ray(processes, shard_lines) if on else None
    return preparation.prepare(objective_of(given), given, say, division)
