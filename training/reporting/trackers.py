"""TensorBoard and trackio, through Accelerate's trackers; metrics.jsonl is complete without them.

TensorBoard's files are in RUNFOLDER/tensorboard (`tensorboard --logdir runs` shows all runs side by side), trackio's
in its own data base (`trackio show --project paperformer`). Both stay on this machine.

A resumed run goes on in both under the same name. The steps it repeats are hidden in TensorBoard as soon as it starts;
trackio, which cannot delete figures, shows them twice. So does either with the steps that follow a roll-back.
"""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, TensorBoardTracker, TrackioTracker

from ..console.input_error import InputError
from .comparison import flatten_recipe

PROJECT = "paperformer"
"""What trackio groups runs by."""

_SENDS_AWAY = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")
"""Variables by which trackio sends figures to another machine."""


def check_trackers(names: Sequence[str]) -> None:
    """Checks that what `run.trackers` names can be used; to be called before anything is written.

    Raises:
        InputError: if a package is missing, or trackio is set to send figures to another machine.
    """
    for name in names:
        if find_spec(name) is None:
            raise InputError(
                f"trackers has {name}, which is not installed; leave it out, or: pip install 'paperformer[tracking]'"
            )
    if "trackio" in names:
        for variable in _SENDS_AWAY:
            if destination := os.environ.get(variable):
                raise InputError(
                    f"the environment variable {variable} is {destination}; trackio would send the run's figures "
                    "there, and they are to stay on this machine: unset it"
                )


def start_trackers(
    accelerator: Accelerator,
    names: Sequence[str],
    run_folder_path: Path,
    run_name: str,
    recipe_dict: Mapping[str, Any],
    *,
    step: int = 0,
) -> None:
    """Starts the trackers, in the first process; `accelerator.end_training()` ends them.

    They take the place of those that `Accelerator(log_with=)` was given, which may be left out, `project_dir` too:
    Accelerate would give trackio and the folder of TensorBoard one and the same name.

    Args:
        names: `run.trackers`.
        run_folder_path: the folder of the run.
        run_name: what trackio calls the run.
        recipe_dict: the recipe, as it is in recipe.yaml.
        step: steps that were done before; what was tracked of later ones is about to be repeated.

    Raises:
        InputError: as `check_trackers` does.
    """
    check_trackers(names)
    trackers: list[GeneralTracker] = []
    if "tensorboard" in names:
        trackers.append(TensorBoardTracker("tensorboard", run_folder_path, purge_step=step + 1))
    if "trackio" in names:
        resume = "allow" if step > 0 else "never"
        options = flatten_recipe(dict(recipe_dict))
        trackers.append(TrackioTracker(PROJECT, name=run_name, resume=resume, config=options, embed=False))
    accelerator.log_with = trackers
    with redirect_stdout(sys.stderr):  # trackio tells there where its data base is; standard output is for results
        accelerator.init_trackers(PROJECT)
    for tracker in accelerator.trackers:
        if tracker.name == "tensorboard":
            # As text: its own form of recipe makes a run of its own, without figures, of each start.
            recipe = yaml.safe_dump(dict(recipe_dict), sort_keys=False, allow_unicode=True)
            tracker.log({"recipe": "".join(f"    {line}\n" for line in recipe.splitlines())}, step=step)


def track(accelerator: Accelerator, record: Mapping[str, Any]) -> None:
    """Sends the numbers of a record of metrics.jsonl to all trackers, if there are any.

    `train/loss`, `validation/bleu`, `gradient_norm/encoder.layers.0`; events and what is not finite are left out.
    """
    if scalars := select_scalars(record):
        accelerator.log(scalars, step=record["step"])


def select_scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a record of metrics.jsonl, by the names that trackers show them under."""
    if "validation" in record:
        groups = {"validation": record["validation"]}
    elif "loss" in record:
        figures = {name: value for name, value in record.items() if name not in ("step", "gradient_norm_by_layer")}
        groups = {"train": figures, "gradient_norm": record.get("gradient_norm_by_layer", {})}
    else:
        return {}
    return {
        f"{group}/{name}": value
        for group, figures in groups.items()
        for name, value in figures.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
