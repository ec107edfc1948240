"""The trainings that an exercise is made of: each is a run, and is done once.

A part that is finished is taken as it is, one that was interrupted goes on, and one that was made with other options is
refused: a comparison needs all its parts made alike.
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ..api.recipes import objective_of, read_recipe
from ..training.atomic_files import remove_folder, replace_file, writing
from ..training.console.input_error import InputError
from ..training.console.progress import say
from ..training.path_lock import hold_lock
from ..training.reporting.comparison import RunRecord, differing_fields, flatten_recipe, read_run
from ..training.run import make_quiet, run
from .lstm import lstm_objective

Fields = Mapping[str, Any]
"""Fields of a recipe, as `read_recipe` takes them."""


def train_part(
    folder: Path,
    name: str,
    fields: Fields,
    *,
    config: str | None = None,
    is_lstm: bool = False,
    lstm_layers: int | None = None,
) -> RunRecord:
    """A finished run of an exercise, trained as far as it is not.

    Args:
        folder: of the exercise.
        name: of the part.
        fields: its recipe's.
        config: the recipe that they override, if any.
        is_lstm: whether an LSTM of the same size stands in for the recipe's Transformer.
        lstm_layers: of the LSTM; by default as many as the Transformer has.

    Raises:
        InputError: if the part is there, and was trained with other options; or as `training.run.run` does.
        TrainingStopped, KeyboardInterrupt: if it was interrupted; the same call goes on.
        TrainingDivergedError: if the loss exploded.
    """
    run_fields = {"name": name, "output_dir": folder, "resume": True}
    recipe = read_recipe(config, {**fields, **run_fields})
    path = folder / name
    if (path / "recipe.yaml").is_file():
        before = read_run(path)
        _check_same(before, recipe.yaml)
        if before.is_finished:
            say(f"{path} is finished")
            return before
    say(f"== {path}")
    make_quiet()
    objective = objective_of(recipe)
    run(lstm_objective(objective, lstm_layers) if is_lstm else objective, recipe, objective.command(recipe.arguments))
    return read_run(path)


def _check_same(before: RunRecord, recipe_yaml: str) -> None:
    """Raises InputError if a part was made with other options."""
    if before.problem:
        raise InputError(f"{before.path} cannot be gone on with ({before.problem}); give --overwrite")
    now = replace(before, recipe=flatten_recipe(yaml.safe_load(recipe_yaml)))
    for field in differing_fields([before, now]):
        raise InputError(
            f"{before.path} was trained with {field} {before.recipe.get(field)}, and this asks for "
            f"{now.recipe.get(field)}; give --overwrite to train all parts anew, or another --output_dir"
        )


def forget_parts(folder: Path, names: Iterable[str]) -> None:
    """Deletes the parts of an exercise that there are.

    Raises:
        InputError: if another process writes one, or one cannot be deleted.
    """
    for path in (folder / name for name in names):
        hidden = [path.with_name(f".{path.name}.{kind}") for kind in ("replaced", "begun")]
        there = [found for found in (path, *hidden) if found.exists()]
        with hold_lock(path) if there else nullcontext():
            for found in there:
                with writing(found):
                    remove_folder(found)


def write_texts(folder: Path, texts: Mapping[str, str]) -> Path:
    """Writes the data of an exercise into a folder that is named by what is in it, and returns that.

    Parts that were trained on other data are found out by the name.

    Args:
        folder: of the exercise.
        texts: content by the name of the file.
    """
    digest = hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in texts.items()).encode()).hexdigest()
    data = folder / f"data-{digest[:12]}"
    with writing(data):
        data.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        if not (data / name).is_file():
            replace_file(data / name, text)
    return data


def minutes_of(parts: Iterable[RunRecord]) -> float:
    """Minutes that the training of parts took."""
    return sum(part.seconds for part in parts) / 60


def hardware_of(parts: Iterable[RunRecord]) -> str:
    """What parts were trained on."""
    return ", then ".join(dict.fromkeys(name for part in parts for name in part.hardware))
