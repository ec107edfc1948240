"""The rows of a sweep, each with its recipes, all checked before anything is trained."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..api.recipes import dotted, objective_of, read_recipe
from ..training.console.input_error import InputError
from ..training.console.suggestions import suggest
from ..training.evaluation.metrics import METRICS, Metric
from ..training.recipe.parsing import recipe_parser
from ..training.recipe.recipe import Recipe
from ..training.reporting.comparison import flatten_recipe
from .options import SweepOptions, listed

_ELSEWHERE = {"name", "seed", "output_dir", "data.workers", "data.cache_dir", "trackers", "push_to_hub"}
"""Fields in which a run that is there may differ from the recipe of its row; its folder says name and seed."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table."""

    name: str
    fields: Mapping[str, Any]
    """In what it differs from the others, by names with dots."""

    recipe: Recipe[Any]
    """With the first seed."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A table of runs that is to be made."""

    name: str
    folder: Path
    common: Mapping[str, Any]
    """What all rows have other than the base."""

    rows: list[Row]
    baseline: str
    metric: Metric
    options: SweepOptions

    @property
    def seeds(self) -> list[int]:
        """Of every row; where a trained model is scored, its own."""
        return self.options.seeds if self.options.model is None else [self.rows[0].recipe.run.seed]

    def run_folder(self, row: Row, seed: int) -> Path:
        """Where the run of a row is, or where the model is that all rows score."""
        if self.options.model is not None:
            return Path(self.options.model)
        return self.folder / _run_name(row.name, seed)

    def recipe_of(self, row: Row, seed: int) -> Recipe[Any]:
        """What is trained for a row with a seed."""
        if seed == self.seeds[0]:
            return row.recipe
        return read_recipe(row.recipe, seed=seed, name=_run_name(row.name, seed))


def make_sweep(options: SweepOptions, given: Mapping[str, str]) -> Sweep:
    """Reads and checks the recipes of all rows.

    Args:
        options: the sweep.
        given: fields of the recipe, as a command line has them: a value for all rows, or a list of values for a grid.

    Raises:
        InputError: if there is no base or no row, a recipe is wrong, a run of another recipe is where one is to go, or
            there is no such score, baseline, or way to score at other lengths.
    """
    if (options.base is None) == (options.model is None):
        raise InputError("a sweep needs either base, the recipe of its rows, or model, a run to score again")
    if not options.seeds or len(set(options.seeds)) < len(options.seeds) or min(options.seeds) < 0:
        raise InputError(f"seeds are {options.seeds}; they must be different numbers from 0 on, one at least")
    first = _read_base(options, {field: text for field, text in given.items() if listed(text) is None})
    axes = _find_axes(given, first)
    common = dotted(options.overrides) | {field: text for field, text in given.items() if field not in axes}
    differing = _expand(options, axes)
    name = options.name or _find_name(options, [*(options.grid or {}), *axes])
    folder = Path(options.output_dir) / name
    rows = [_make_row(row, fields, options, common, folder) for row, fields in differing.items()]
    if len({_as_folder(row.name) for row in rows}) < len(rows):
        raise InputError(f"rows must have different names as folders; there are {', '.join(row.name for row in rows)}")
    baseline = options.baseline or rows[0].name
    if baseline not in differing:
        raise InputError(f"baseline is {baseline}; it must be a row: {', '.join(differing)}")
    score = options.score or first.evaluation.select_by
    if score not in METRICS:
        raise InputError(f"score is {score}; {suggest(score, METRICS, 'there are ' + ', '.join(METRICS))}")
    sweep = Sweep(
        name=name,
        folder=folder,
        common=common,
        rows=rows,
        baseline=baseline,
        metric=METRICS[score],
        options=options,
    )
    _check_lengths(sweep)
    if options.model is None:
        for row, seed in itertools.product(rows, sweep.seeds):
            _check_same(sweep.run_folder(row, seed) / "recipe.yaml", row.recipe)
    return sweep


def _find_name(options: SweepOptions, several: Sequence[str]) -> str:
    """The base and the fields that have several values: `shakespeare-lm-optimizer`."""
    base = options.base.get("name", "sweep") if isinstance(options.base, dict) else options.model or options.base
    return _as_folder("-".join([Path(str(base)).stem, *(field.rpartition(".")[2] for field in several)]))


def _read_base(options: SweepOptions, given: Mapping[str, str]) -> Recipe[Any]:
    """The recipe that all rows begin with."""
    if options.model is not None:
        path = Path(options.model) / "recipe.yaml"
        if not path.is_file() or not (Path(options.model) / "model").is_dir():
            raise InputError(f"model is {options.model}; it must be the folder of a finished run, such as runs/first")
        return read_recipe(path, {**dotted(options.overrides), **given})
    fields = {**dotted(options.overrides), **given, "name": options.name or "sweep", "output_dir": options.output_dir}
    return read_recipe(options.base, fields)


def _find_axes(given: Mapping[str, str], recipe: Recipe[Any]) -> dict[str, list[Any]]:
    """The fields that are given several values. Of one that takes a list, several are a list of lists."""
    objective = objective_of(recipe)
    hints = recipe_parser(objective.family.config, objective.data).fields
    axes = {}
    for field, text in given.items():
        items = listed(text)
        if items is not None and ("list" not in str(hints.get(field)) or any(isinstance(item, list) for item in items)):
            axes[field] = items
    return axes


def _expand(options: SweepOptions, axes: Mapping[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """Name -> fields of each row."""
    axes = {**(options.grid or {}), **axes}
    if (options.rows is None) == (not axes):
        several = f"; {' and '.join(axes)} have several values" if axes else ""
        raise InputError(f"a sweep has either rows, or a grid of fields with several values{several}")
    if options.rows is not None:
        rows = {str(name): dotted(fields or {}) for name, fields in options.rows.items()}
        for name in rows:
            if not name.strip(". ") or "/" in name or "\\" in name:
                raise InputError(f"row '{name}' cannot be the name of a folder; use letters and no slashes")
    else:
        if empty := [field for field, values in axes.items() if not values]:
            raise InputError(f"{empty[0]} has no values; give two at least: --{empty[0]} '[VALUE,VALUE]'")
        combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        rows = {_name_of(fields): fields for fields in combinations}
    if not rows:
        raise InputError("a sweep needs rows: NAME: {FIELD: VALUE}")
    return rows


def _name_of(fields: Mapping[str, Any]) -> str:
    """`muon`, or `num_beams=5` where the value does not speak for itself, or there are several."""
    texts = [as_text(value) for value in fields.values()]
    if len(fields) == 1 and re.fullmatch(r"[A-Za-z].*", texts[0]) and texts[0] not in ("true", "false", "null", "no"):
        return texts[0]
    return ", ".join(f"{field.rpartition('.')[2]}={as_text(value)}" for field, value in fields.items())


def as_text(value: Any) -> str:
    """A value as a recipe has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_folder(name: str) -> str:
    return re.sub(r"[^\w.+=-]+", "-", name)


def _run_name(row: str, seed: int) -> str:
    return f"{_as_folder(row)}-seed{seed}"


def _make_row(
    name: str,
    fields: Mapping[str, Any],
    options: SweepOptions,
    common: Mapping[str, Any],
    folder: Path,
) -> Row:
    """A row with its recipes.

    Raises:
        InputError: if one of them is wrong; the message begins with the row's name.
    """
    if own := [field for field in fields if field in ("name", "output_dir", "seed", "resume", "overwrite")]:
        raise InputError(
            f"row {name}: {own[0]} is the sweep's, and no field of a row; for several seeds there is seeds"
        )
    if options.model is not None:
        for field in (*common, *fields):
            if field != "data.context_length" and not field.startswith("evaluation."):
                raise InputError(
                    f"row {name}: {field} cannot change, as model is a trained one; only evaluation.* and "
                    "data.context_length can"
                )
    try:
        if options.model is not None:
            recipe = read_recipe(Path(options.model) / "recipe.yaml", {**common, **fields})
        else:
            place = {"name": _run_name(name, options.seeds[0]), "output_dir": str(folder), "seed": options.seeds[0]}
            recipe = read_recipe(options.base, {**common, **fields, **place, "resume": True})
    except InputError as error:
        raise InputError(f"row {name}: {error}") from error
    return Row(name=name, fields=fields, recipe=recipe)


def _check_lengths(sweep: Sweep) -> None:
    """Raises InputError if finished models could not be scored at the context lengths that are asked for."""
    if not (lengths := sweep.options.score_at):
        return
    if min(lengths) < 2:
        raise InputError(f"score_at is {lengths}; lengths must be at least 2, as the first token is not predicted")
    for row in sweep.rows:
        recipe = row.recipe
        if recipe.run.objective != "lm":
            raise InputError(f"score_at is for language models; the recipe's objective is {recipe.run.objective}")
        try:
            read_recipe(recipe, {"data.context_length": max(lengths)})
        except InputError as error:
            raise InputError(f"row {row.name}, score_at {max(lengths)}: {error}") from error


def _check_same(path: Path, recipe: Recipe[Any]) -> None:
    """Raises InputError if a run was begun by another recipe than that of its row: the table would mix both."""
    if not path.is_file():
        return
    before, now = (flatten_recipe(yaml.safe_load(text)) for text in (path.read_text("utf-8"), recipe.yaml))
    for field, value in now.items():
        if field in before and field not in _ELSEWHERE and before[field] != value:
            raise InputError(
                f"the run {path.parent} was made with {field} {as_text(before[field])}, and its row now has "
                f"{as_text(value)}; give the sweep another --name, or delete that run"
            )
