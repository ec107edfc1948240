"""The finished model that an exercise is given."""

from pathlib import Path

from ..api.runs import Run


def find_model_folder(model: str) -> str:
    """The model in a run's folder, if that is what is given; else what is given.

    Raises:
        InputError: if the run is not finished.
    """
    return str(Run(model).model_folder) if (Path(model) / "recipe.yaml").is_file() else model
