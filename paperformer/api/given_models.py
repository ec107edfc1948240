"""What may be given for a model, and what of it is loaded."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ..commands.loading import Dtype, check_task, load
from ..shipped_models import find_shipped
from ..training.console.input_error import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from .runs import Run

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
