"""The folder of a run, and what makes it safe to interrupt at any instant.

    OUTPUT_DIR/NAME/recipe.yaml        every option of the run
                    data.json          the sources of the text, what was left out of it and why
                    tokenizer/         the trained tokenizer
                    config.json        the model's configuration, and generation_config.json
                    metrics.jsonl      one JSON object a line: training and validation figures by step
                    samples.jsonl      the same: sample outputs at each validation
                    checkpoints/       step-N/: everything needed to go on from step N
                    evaluation/        scores, and the test set's outputs
                    model/             the finished model, ready for the Hub

Folders are written under a temporary name and then renamed, so that a folder of the final name is always complete.
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .atomic_files import remove_folder, replace_file, replace_folder, writing
from .console.input_error import InputError
from .recipe.changes import Change, check_changes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .recipe.recipe import Recipe
    from .recipe.run import RunOptions


class RunFolder:
    """One run's folder. Nothing is written before `create`."""

    def __init__(self, options: "RunOptions"):
        self.options = options
        self.path = Path(options.output_dir) / options.name
        self.recipe_path = self.path / "recipe.yaml"
        self.data_path = self.path / "data.json"
        self.metrics_path = self.path / "metrics.jsonl"
        self.samples_path = self.path / "samples.jsonl"
        self.checkpoints_path = self.path / "checkpoints"
        self.evaluation_path = self.path / "evaluation"
        self.model_path = self.path / "model"
        self.tokenizer_path = self.path / "tokenizer"

    def check(self, recipe: "Recipe[Any]") -> list[Change]:
        """Checks, changing nothing, that a run of this recipe can be written here.

        Returns:
            What a resumed run has that is different from what it had before.

        Raises:
            InputError: if the run exists and is neither to be resumed nor overwritten, if it is to be resumed with
                what cannot change, or if nothing can be written here.
        """
        changes = []
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; it must be a folder, or not exist (--output_dir, --name)")
        if self.recipe_path.exists():
            if not (self.options.resume or self.options.overwrite):
                raise InputError(f"the run {self.path} exists; give --resume, --overwrite or another --name")
            if self.options.resume:
                changes = check_changes(self.path, self.recipe_path.read_text(encoding="utf-8"), recipe.yaml)
        elif self.path.exists() and any(self.path.iterdir()):
            raise InputError(f"{self.path} exists and is not a run; give another --name or --output_dir")
        self._check_writable()
        return changes

    def _check_writable(self) -> None:
        """Makes the folder and a file in it, and takes both away again; permissions alone do not tell."""
        missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
            for folder in missing:
                folder.rmdir()

    def create(self, recipe_yaml: str) -> None:
        """Makes the folder and writes the recipe; an existing run is taken up or deleted, as the options say.

        Raises:
            InputError: if it cannot be written.
        """
        with writing(self.path):
            if self.options.overwrite and self.path.exists():
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            for leftover in (*self.path.glob("*.partial"), *self.checkpoints_path.glob("*.partial")):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            replace_file(self.recipe_path, recipe_yaml)

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Complete checkpoints as (step, folder), oldest first."""
        folders = self.checkpoints_path.glob("step-*")
        return sorted((int(f.name.removeprefix("step-")), f) for f in folders if f.name.removeprefix("step-").isdigit())

    def save_checkpoint(self, step: int, write: Callable[[Path], Any]) -> Path:
        """Writes a checkpoint whole or not at all, and returns its folder.

        Raises:
            InputError: if it cannot be written.
        """
        path = self.checkpoints_path / f"step-{step}"
        replace_folder(path, write)
        return path

    def delete_checkpoints_except(self, steps: set[int]) -> None:
        """Deletes the checkpoints of all other steps."""
        for step, folder in self.checkpoints():
            if step not in steps:
                remove_folder(folder)

    def log(self, record: dict[str, Any]) -> None:
        """Appends one line to metrics.jsonl."""
        _append(self.metrics_path, record)

    def log_samples(self, record: dict[str, Any]) -> None:
        """Appends one line to samples.jsonl."""
        _append(self.samples_path, record)

    def metrics(self) -> list[dict[str, Any]]:
        """All complete lines of metrics.jsonl."""
        return _records(self.metrics_path)

    def samples(self) -> list[dict[str, Any]]:
        """All complete lines of samples.jsonl."""
        return _records(self.samples_path)

    def forget_after(self, step: int) -> None:
        """Drops the lines of what a resumed run is about to repeat: later steps, and the choice at the end."""
        for path in (self.metrics_path, self.samples_path):
            records = _records(path)
            kept = [_line(record) for record in records if record["step"] <= step and "chosen" not in record]
            if path.exists():
                replace_file(path, "".join(kept))

    def save_config(self, model: "PreTrainedModel") -> None:
        """Writes the model's configuration, with which a checkpoint can be loaded by itself."""
        with writing(self.path):
            model.config.save_pretrained(self.path)
            if model.generation_config is not None:
                model.generation_config.save_pretrained(self.path)


def _append(path: Path, record: dict[str, Any]) -> None:
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(_line(record))


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def _records(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]  # what follows the last line end was cut off by a crash
