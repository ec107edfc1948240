"""Training from Python, and what a run has left in its folder."""

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..commands.loading import load_model, load_tokenizer
from ..training.console.input_error import InputError
from ..training.data.cleaning.leaks import find_seen
from ..training.data.corpus import Corpus
from ..training.evaluation.evaluation_file import EVALUATION_FILE, read_scores
from ..training.evaluation.metrics import Score
from ..training.recipe.run import RunOptions
from ..training.run import make_quiet, run
from ..training.run_folder import RunFolder
from .recipes import Fields, GivenRecipe, objective_of, read_recipe


@dataclass(frozen=True)
class Run:
    """A run, by its folder: one that `train` has finished, or any other, also while it goes on.

    Raises:
        InputError: if the folder is not a run's; by what reads a finished run, if it is not finished.
    """

    folder: Path

    def __init__(self, folder: str | os.PathLike[str]):
        object.__setattr__(self, "folder", Path(folder))
        if not self._files.recipe_path.is_file():
            raise InputError(f"{self.folder} is no run: it has no recipe.yaml")

    @property
    def _files(self) -> RunFolder:
        folder = self.folder.resolve()
        return RunFolder(RunOptions(name=folder.name, output_dir=str(folder.parent)))

    @property
    def model_folder(self) -> Path:
        """The finished model, ready for the Hub: weights, tokenizer, code, card."""
        return self._finished("model")

    @property
    def scores(self) -> list[Score]:
        """What the chosen model scores on the validation split and on the test split (`Score.split`)."""
        path = self._finished("evaluation") / EVALUATION_FILE
        try:
            return read_scores(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl, oldest first: loss, learning rate, speed and validation scores by step."""
        return self._files.metrics()

    @cached_property
    def model(self) -> PreTrainedModel:
        """The finished model in evaluation mode, on the GPU if there is one; loaded when it is first asked for."""
        return load_model(str(self.model_folder))

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer; of the source, where the target has one of its own."""
        return load_tokenizer(str(self.model_folder))

    def count_seen(self, rows: pa.RecordBatch) -> int | None:
        """How many rows of an evaluation set were in the training text, as far as their words go.

        Args:
            rows: sentence pairs, columns `source` and `target`, or `text`.

        Returns:
            None if the run's clean text is no more in its cache, or was never there because it was streamed.
        """
        files = self._files
        try:
            name = json.loads(files.data_path.read_text("utf-8"))["train"]["folder"]
            cache = yaml.safe_load(files.recipe_path.read_text("utf-8"))["data"].get("cache_dir")
        except (OSError, KeyError, ValueError, yaml.YAMLError):
            return None
        corpus = Corpus(Path(cache or files.path.parent / ".cache").expanduser() / name)
        if not corpus.folder.is_dir() or corpus.is_parallel != ("source" in rows.schema.names):
            return None
        return int(find_seen(rows, corpus.chunks_without_tags()).sum())

    def _finished(self, name: str) -> Path:
        if not (path := self.folder / name).is_dir():
            raise InputError(f"{self.folder} is not finished: it has no {name}; train it further with resume=True")
        return path


def train(recipe: GivenRecipe = None, overrides: Fields | None = None, **fields: Any) -> Run:
    """Trains a model: tokenizer, training, scores, model folder, card; progress is said on standard error.

    Args:
        recipe, overrides, fields: as `read_recipe` takes them.

    Raises:
        InputError: if something that was given cannot be used, before anything is written.
        TrainingStopped: if it was interrupted and its state is saved: go on with the same and `resume=True`.
        KeyboardInterrupt: if it was interrupted otherwise.
        TrainingDivergedError: if the loss exploded.
    """
    given = read_recipe(recipe, overrides, **fields)
    objective = objective_of(given)
    make_quiet()
    model_path = run(objective, given, objective.command(given.arguments))
    return Run(model_path.parent)
