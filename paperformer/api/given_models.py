"""What may be given for a model, and what of it is loaded."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, cast

from ..commands.loading import Dtype, check_task, load, load_generation_config
from ..shipped_models import find_shipped
from ..training.console.input_error import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from .runs import Run

NUM_BEAMS, LENGTH_PENALTY = 5, 1.0
"""Of a search, where a model does not say its own."""

Model = Union[str, os.PathLike[str], "Run", "PreTrainedModel"]
"""A model's folder or a run's, the name of a shipped one or one on the Hub, a run, or a model that has been loaded."""


def load_given(
    model: Model,
    task: str | None,
    tokenizer: "PreTrainedTokenizerBase | None",
    trust_remote_code: bool,
    engine: str = "torch",
    dtype: Dtype | None = None,
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """The model in evaluation mode, or an export that stands in for it, and its tokenizer."""
    if engine != "torch":
        from ..export.running import load_engine

        if not isinstance(model, str | os.PathLike):
            raise InputError(f"engine is {engine!r}; the model must then be a folder")
        stand_in: Any = load_engine(place_of(model), engine)
        return stand_in, tokenizer or stand_in.tokenizer
    if isinstance(model, str | os.PathLike):
        loaded, own_tokenizer = load(place_of(model), task, trust_remote_code=trust_remote_code, dtype=dtype)
        return loaded, tokenizer or own_tokenizer
    from .runs import Run  # and with it everything that trains, which takes seconds

    if dtype is not None:
        raise InputError(
            f"dtype is {dtype!r}, and the model has been loaded: call its .to(dtype), or .pack_weights(torch.int8)"
        )
    if isinstance(model, Run):
        check_task(model.model.config, task, str(model.folder))
        return model.model, tokenizer or model.tokenizer
    if tokenizer is None:
        raise InputError("a model that has been loaded needs its tokenizer: tokenizer=...")
    check_task(model.config, task, "the model")
    return model.eval(), tokenizer


def place_of(model: "str | os.PathLike[str] | Run") -> str:
    """A model's folder, be it given by its run, that of its run or the name of a shipped one, or its name on the Hub.

    Raises:
        InputError: if the run is not finished.
    """
    if not isinstance(model, (str, os.PathLike)):
        return str(model.model_folder)
    place = os.fspath(model)
    if not (Path(place) / "recipe.yaml").is_file():
        return str(find_shipped(place) or place)
    from .runs import Run

    return str(Run(place).model_folder)


def search_of(
    model: Model, num_beams: int | None = None, length_penalty: float | None = None, n_best: int | None = None
) -> tuple[int, float]:
    """Beam size and exponent of the length: those that are given, or else the model's own, with which it was scored.

    A model says them in its generation_config.json; of one that says nothing they are 5 and 1. There are at least as
    many beams as there are to be translations.

    Raises:
        InputError: if there is no such beam size, be it given or the model's own, or a run is not finished.
    """
    check_beams(num_beams)
    if num_beams is None or length_penalty is None:
        own_beams, own_penalty = _own_search(model)
        if num_beams is None:
            num_beams = max(NUM_BEAMS if own_beams is None else own_beams, n_best or 1)
        if length_penalty is None:
            length_penalty = LENGTH_PENALTY if own_penalty is None else own_penalty
    return num_beams, length_penalty


def check_beams(num_beams: int | None) -> None:
    """Raises InputError if there is no such beam size."""
    if num_beams is not None and num_beams < 1:
        raise InputError(f"num_beams is {num_beams}; it must be at least 1")


def _own_search(model: Model) -> tuple[int | None, float | None]:
    from ..export.export_file import EXPORT_FILE, ExportFile

    place = "the model"
    if hasattr(model, "generation_config"):  # it has been loaded
        own: Any = model.generation_config
    else:
        place = place_of(cast("str | Run", model))
        is_export = (Path(place) / EXPORT_FILE).is_file()
        own = ExportFile.read(Path(place)) if is_export else load_generation_config(place)
    beams, penalty = getattr(own, "num_beams", None), getattr(own, "length_penalty", None)
    # Files may say anything, and neither transformers nor an export looks at it.
    if beams is not None and (type(beams) is not int or beams < 1):
        raise InputError(
            f"{place}: its own num_beams is {beams!r}; it must be an integer from 1 (generation_config.json)"
        )
    if penalty is not None and (type(penalty) not in (int, float) or not math.isfinite(penalty)):
        raise InputError(
            f"{place}: its own length_penalty is {penalty!r}; it must be a number (generation_config.json)"
        )
    return beams, penalty
