"""A finished model in the format of another engine."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

from ..training.console.input_error import InputError
from .given_models import check_beams, place_of

if TYPE_CHECKING:
    from ..export.comparison import Comparison
    from .runs import Run


def export_model(
    model: Union[str, os.PathLike[str], "Run"],
    output: str | os.PathLike[str],
    to: str,
    *,
    quantization: str = "float32",
    text: str | os.PathLike[str] | None = None,
    references: Sequence[str] | None = None,
    sequences: int = 100,
    num_beams: int = 5,
) -> "Comparison":
    """Exports a model, and writes the folder only if what is in it agrees with the model.

    Args:
        model: a run, its folder or a model's, or a name on the Hub.
        output: the folder to write; it must not exist.
        to: the engine: ctranslate2, onnx or gguf.
        quantization: how weights are stored: float32, or what the engine has.
        text: a file to compare on: sentences, or running text; by default what the model's run has left of its test
            set, or else random tokens.
        references: raw translations of the lines of `text`.
        sequences: how many sentences, or windows of running text, are compared at the most.
        num_beams: beam size of translations.

    Returns:
        What the comparison has found; it lies in the folder as export.json and export.md too.

    Raises:
        InputError: if the model cannot be loaded, the format cannot say it (the message names the option), or the
            export differs by more than its quantisation explains; nothing has been written then.
    """
    from ..export.exporting import export_folder

    check_beams(num_beams)
    if references is not None and text is None:
        raise InputError("references are given without the text that they are translations of")
    return export_folder(
        place_of(model),
        Path(output),
        to,
        quantization=quantization,
        text=None if text is None else Path(text),
        references=references,
        sequences=sequences,
        num_beams=num_beams,
    )
