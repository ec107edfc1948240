"""Recipes from Python: a file, the name of one that ships with the package, or a mapping, and what overrides it.

All of it becomes the words of a command line, so that types, messages and what a recipe leaves open are the same.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import yaml

from ..training.console.input_error import InputError
from ..training.recipe.parsing import find_recipe
from ..training.recipe.recipe import Recipe
from ..training.recipe.recipe_file import read_yaml
from ..training.tasks.objective import Objective
from ..training.tasks.registry import OBJECTIVES, objective_of_recipe

Fields = Mapping[str, Any]
"""Values by field: with dots, `{"data.train": "my.txt"}`, or in sections, `{"data": {"train": "my.txt"}}`."""

GivenRecipe = str | os.PathLike[str] | Fields | Recipe[Any] | None


def read_recipe(recipe: GivenRecipe = None, overrides: Fields | None = None, **fields: Any) -> Recipe[Any]:
    """A recipe, checked and complete.

    Args:
        recipe: a YAML file; the name of a recipe that ships with the package (`shakespeare-lm`); its fields; or one
            that was read before. What a mapping leaves open is chosen to suit its data, as it is on the command line.
        overrides: fields that are to have another value.
        fields: the same for those without a dot, such as `name`, `output_dir` and `resume`, and for whole sections:
            `data={"train": "my.txt"}`. They win over `overrides`.

    Raises:
        InputError: if the recipe cannot be read, does not say its objective, or has a field that does not exist, of a
            wrong type or with a value that cannot be. A field is called as it is in a recipe or on the command line.
    """
    if isinstance(recipe, Recipe):
        _check_as_read(recipe)
        if not overrides and not fields:
            return recipe
        words = recipe.arguments
        given: Fields = {"objective": recipe.run.objective}
    else:
        words = []
        given = recipe if isinstance(recipe, Mapping) else {} if recipe is None else {"config": recipe}
    changes = {**dotted(overrides or {}), **dotted(fields)}
    every = {**dotted(given), **changes}
    return _find_objective(every).read_recipe([*words, *to_words(changes if words else every)])


def objective_of(recipe: Recipe[Any]) -> Objective:
    """What a recipe that was read is for."""
    return OBJECTIVES[str(recipe.run.objective)]


def dotted(fields: Fields) -> dict[str, Any]:
    """The fields by names with dots. A mapping below a section is a value: a source of text, or RoPE's parameters."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and "." not in name:
            found |= {f"{name}.{field}": content for field, content in value.items()}
        else:
            found[name] = value
    return found


def to_words(fields: Fields) -> list[str]:
    """Fields with dots as options of a command line."""
    words: list[str] = []
    for name, value in fields.items():
        text = _written(name, value)
        words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return words


def _written(name: str, value: Any) -> str:
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)

    def plain(item: Any) -> Any:
        if isinstance(item, os.PathLike):
            return os.fspath(item)
        if isinstance(item, Integral):  # NumPy's are, and json does not know them
            return int(item)
        if isinstance(item, Real):
            return float(item)
        raise InputError(f"{name} is {item!r}; it must be text, a number, a bool, None, or a list or dict of those")

    return json.dumps(value, default=plain, ensure_ascii=False)


def _find_objective(fields: Fields) -> Objective:
    """The objective of a recipe, by its fields, its file, or the run that it goes on with."""
    if fields.get("objective") is None:
        fields = {name: value for name, value in fields.items() if name != "objective"}
        if fields.get("config") is not None:
            fields = _fields_in(find_recipe(os.fspath(fields["config"]))) | fields
        elif fields.get("resume") and "name" in fields:
            path = Path(fields.get("output_dir", "runs")) / fields["name"] / "recipe.yaml"
            fields = (_fields_in(path) if path.is_file() else {}) | fields
    if objective := objective_of_recipe(fields):
        return objective
    *others, last = OBJECTIVES
    said = f"objective is {fields['objective']}" if "objective" in fields else "the recipe does not say its objective"
    raise InputError(f"{said}; it must be {', '.join(others)} or {last}")


def _fields_in(path: Path) -> dict[str, Any]:
    """The fields of a file that is a mapping; whether they are right is seen when it is read for an objective."""
    text, _ = read_yaml(path)
    content = yaml.safe_load(text)
    if not isinstance(content, dict):
        return {}
    return {name: value for name, value in dotted(content).items() if value is not None}


def _check_as_read(recipe: Recipe[Any]) -> None:
    """Raises InputError if fields were assigned since: the run's folder and its card would say what was not done."""
    told = yaml.safe_load(recipe.yaml)
    parts: dict[str, Any] = vars(recipe)
    sections = {name: asdict(part) for name, part in parts.items() if name not in ("run", "model", "yaml", "arguments")}
    now = dotted(sections | {"model": recipe.model} | asdict(recipe.run))
    for name, value in dotted(told).items():
        if name in now and now[name] != value:
            raise InputError(
                f"{name} of the recipe was set to {now[name]} after it was read; a recipe is not changed: read it "
                f"again with an override, {{{name!r}: {now[name]!r}}}"
            )
