"""The folder of a run, and what makes it safe to interrupt at any instant.

    OUTPUT_DIR/NAME/recipe.yaml        every option of the run
                    tokenizer/         the trained tokenizer
                    metrics.jsonl      one JSON object a line: training and validation figures by step
                    checkpoints/       step-N/: everything needed to go on from step N
                    evaluation/        scores, and the test set's outputs
                    model/             the finished model, ready for the Hub

Checkpoints and the model are written under a temporary name and then renamed, so that a folder of the final name is
always complete.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .input_error import InputError
from .recipe import RunOptions


class RunFolder:
    """One run's folder.

    Raises:
        InputError: if the run exists and is neither to be resumed nor overwritten, or if nothing can be written there.
    """

    def __init__(self, options: RunOptions, recipe_yaml: str, *, create: bool = True):
        self.path = Path(options.output_dir) / options.name
        self.metrics_path = self.path / "metrics.jsonl"
        self.checkpoints_path = self.path / "checkpoints"
        self.evaluation_path = self.path / "evaluation"
        self.model_path = self.path / "model"
        self.tokenizer_path = self.path / "tokenizer"
        if not create:
            return
        recipe_path = self.path / "recipe.yaml"
        if self.path.is_file():
            raise InputError(f"{self.path} is a file; it must be a folder, or not exist (--output_dir, --name)")
        if recipe_path.exists() and not (options.resume or options.overwrite):
            raise InputError(f"the run {self.path} exists; give --resume true, --overwrite true or another --name")
        if self.path.exists() and not recipe_path.exists() and any(self.path.iterdir()):
            raise InputError(f"{self.path} exists and is not a run; give another --name or --output_dir")
        try:
            if options.overwrite and self.path.exists():
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            recipe_path.write_text(recipe_yaml, encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write to {self.path}: {error.strerror} (--output_dir)") from error

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Complete checkpoints as (step, folder), oldest first."""
        folders = self.checkpoints_path.glob("step-*")
        return sorted((int(f.name.removeprefix("step-")), f) for f in folders if f.name.removeprefix("step-").isdigit())

    def save_checkpoint(self, step: int, write: Callable[[Path], Any], keep: set[int] | None = None) -> None:
        """Writes step-STEP whole or not at all, then deletes the checkpoints that are not in `keep`."""
        replace_folder(self.checkpoints_path / f"step-{step}", write)
        for other, folder in self.checkpoints():
            if keep is not None and other not in keep and other != step:
                shutil.rmtree(folder)

    def log(self, record: dict[str, Any]) -> None:
        """Appends one line to metrics.jsonl."""
        with self.metrics_path.open("a", encoding="utf-8") as file:
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
    """Lets `write` fill a temporary folder beside `folder`, which then takes its place."""
    temporary = folder.with_name(folder.name + ".partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write(temporary)
    if folder.exists():
        shutil.rmtree(folder)
    temporary.rename(folder)


def replace_file(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
