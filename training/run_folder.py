"""The folder of a run, and what makes it safe to interrupt at any instant.

    OUTPUT_DIR/NAME/recipe.yaml        every option of the run
                    data.json          the sources of the text, what was left out of it and why
                    tokenizer/         the trained tokenizer
                    metrics.jsonl      one JSON object a line: training and validation figures by step
                    checkpoints/       step-N/: everything needed to go on from step N
                    evaluation/        scores, and the test set's outputs
                    model/             the finished model, ready for the Hub

Folders are written under a temporary name and then renamed, so that a folder of the final name is always complete.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from .input_error import InputError, writing

if TYPE_CHECKING:
    from .options.run import RunOptions
    from .recipe import Recipe

_MAY_CHANGE = {
    "model.dropout",
    "model.attention_dropout",
    "model.activation_dropout",
    "model.label_smoothing",
    "model.use_cache",
    "tokenizer.bpe_dropout",
}
"""Of the sections `model` and `tokenizer`, what a resumed run may change: it does not alter what the weights mean."""


class RunFolder:
    """One run's folder. Nothing is written before `create`."""

    def __init__(self, options: "RunOptions"):
        self.options = options
        self.path = Path(options.output_dir) / options.name
        self.recipe_path = self.path / "recipe.yaml"
        self.data_path = self.path / "data.json"
        self.metrics_path = self.path / "metrics.jsonl"
        self.checkpoints_path = self.path / "checkpoints"
        self.evaluation_path = self.path / "evaluation"
        self.model_path = self.path / "model"
        self.tokenizer_path = self.path / "tokenizer"

    def check(self, recipe: "Recipe[Any]") -> None:
        """Checks, changing nothing, that a run of this recipe can be written here.

        Raises:
            InputError: if the run exists and is neither to be resumed nor overwritten, if it is to be resumed with
                another model, or if nothing can be written here.
        """
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; it must be a folder, or not exist (--output_dir, --name)")
        if self.recipe_path.exists():
            if not (self.options.resume or self.options.overwrite):
                raise InputError(f"the run {self.path} exists; give --resume, --overwrite or another --name")
            if self.options.resume:
                self._check_same_model(recipe)
        elif self.path.exists() and any(self.path.iterdir()):
            raise InputError(f"{self.path} exists and is not a run; give another --name or --output_dir")
        self._check_writable()

    def _check_same_model(self, recipe: "Recipe[Any]") -> None:
        before = yaml.safe_load(self.recipe_path.read_text(encoding="utf-8"))
        now = yaml.safe_load(recipe.yaml)
        for section in ("model", "tokenizer"):
            for name, value in now[section].items():
                field, earlier = f"{section}.{name}", before.get(section, {}).get(name, value)
                if value != earlier and field not in _MAY_CHANGE:
                    raise InputError(
                        f"the run {self.path} was begun with {field} {earlier}, and this recipe has {value}; resume it "
                        "with the same, or give another --name or --overwrite"
                    )

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

    def checkpoint_path(self, step: int) -> Path:
        """Where the checkpoint of a step is, or will be."""
        return self.checkpoints_path / f"step-{step}"

    def save_checkpoint(self, step: int, write: Callable[[Path], Any], keep: set[int]) -> None:
        """Writes a checkpoint whole or not at all, then deletes those of other steps that are not in `keep`.

        Raises:
            InputError: if it cannot be written.
        """
        replace_folder(self.checkpoint_path(step), write)
        for other, folder in self.checkpoints():
            if other not in keep | {step}:
                _remove_folder(folder)

    def log(self, record: dict[str, Any]) -> None:
        """Appends one line to metrics.jsonl."""
        with writing(self.metrics_path), self.metrics_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All complete lines of metrics.jsonl."""
        if not self.metrics_path.exists():
            return []
        lines = self.metrics_path.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines[:-1]]  # what follows the last line end was cut off by a crash

    def forget_metrics_after(self, step: int) -> None:
        """Drops the lines of steps that a resumed run is about to repeat."""
        kept = [json.dumps(record) + "\n" for record in self.metrics() if record["step"] <= step]
        replace_file(self.metrics_path, "".join(kept))


def replace_folder(folder: Path, write: Callable[[Path], Any]) -> None:
    """Lets `write` fill a temporary folder, which then takes the place of `folder`.

    Raises:
        InputError: if it cannot be written; what was there before is still there.
    """
    temporary = partial_path(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with writing(folder):
            temporary.mkdir(parents=True)
            write(temporary)
            _sync(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if folder.exists():
        _remove_folder(folder, temporary_name=folder.with_name(f"{folder.name}.old.partial"))
    temporary.rename(folder)


def _sync(folder: Path) -> None:
    """Waits until a folder is on the disk: a name that survives a power failure must not stand for empty files."""
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_folder(folder: Path, temporary_name: Path | None = None) -> None:
    """Deletes a folder that must not be taken for a complete one if this is interrupted."""
    shutil.rmtree(folder.rename(temporary_name or partial_path(folder)))


def partial_path(path: Path) -> Path:
    """The temporary name under which a file or a folder is written."""
    return path.with_name(f"{path.name}.partial")


def replace_file(path: Path, content: str | bytes) -> None:
    """Writes a file whole or not at all; text as UTF-8.

    Raises:
        InputError: if it cannot be written; what was there before is still there.
    """
    temporary = partial_path(path)
    try:
        with writing(path):
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(path)
