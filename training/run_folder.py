"""The folder of a run, and what makes it safe to interrupt at any instant.

    OUTPUT_DIR/NAME/recipe.yaml        every option of the run
                    data.json          the sources of the text, what was left out of it and why
                    base.json          of a model that was trained further: its name and the hash of its weights
                    tokenizer/         the trained tokenizer
                    config.json        the model's configuration, and generation_config.json
                    metrics.jsonl      one JSON object a line: training and validation figures by step; what is not
                                       a finite number is null
                    samples.jsonl      the same: sample outputs at each validation
                    checkpoints/       step-N/: everything needed to go on from step N
                    evaluation/        scores, and the test set's outputs
                    model/             the finished model, ready for the Hub

Folders are written under a temporary name and then renamed, so that a folder of the final name is always complete.

Replacing a run (`--overwrite`): the run that is there goes only when the new one has been validated once. Until then it
is beside it, moved and otherwise untouched.

    OUTPUT_DIR/.NAME.replaced/     the old run, while the new one has not been validated
               .NAME.begun/        a new run that was interrupted before, while the old one is in its place again
               .NAME.lock, .NAME.holder    which process writes the run (`path_lock`)

If the new run fails or is interrupted before its first validation, the old one takes its place again. The new one is
kept in .NAME.begun if it has a checkpoint: it was said to be saved. `--resume` then goes on with that, the newer one,
and the old one steps aside once more; `--overwrite` begins anew, and only then deletes it. A new run without a
checkpoint is deleted, since nothing could go on with it. After a killed process, the next start of a run of that name
does the same before anything else, and says so; where it was to resume a new run of which nothing was saved, it ends
there instead of going on with the old one.
"""

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .atomic_files import remove_folder, replace_file, replace_folder, writing
from .console.input_error import InputError
from .console.progress import say
from .path_lock import hold_lock
from .recipe.changes import Change, check_changes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .recipe.recipe import Recipe
    from .recipe.run import RunOptions


METRICS_FILE = "metrics.jsonl"
BULKY = {"gradient_norm_by_layer"}


class NothingSaved(KeyboardInterrupt):
    """An interruption of a run that was to replace another, before there was anything to go on with."""


class RunFolder:
    """One run's folder. Nothing is written in it before `create`."""

    def __init__(self, options: "RunOptions"):
        self.options = options
        self.path = Path(options.output_dir) / options.name
        self.recipe_path = self.path / "recipe.yaml"
        self.data_path = self.path / "data.json"
        self.base_path = self.path / "base.json"
        self.metrics_path = self.path / METRICS_FILE
        self.samples_path = self.path / "samples.jsonl"
        self.checkpoints_path = self.path / "checkpoints"
        self.evaluation_path = self.path / "evaluation"
        self.model_path = self.path / "model"
        self.tokenizer_path = self.path / "tokenizer"
        self.replaced_path = self.path.with_name(f".{options.name}.replaced")
        self.begun_path = self.path.with_name(f".{options.name}.begun")
        self._is_ours = False
        """Whether what is at `path` was begun by this call, or is kept for `--resume`."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A context in which this process, and no other, writes the run; around all of it, from `check` to the end.

        If it is left by an exception before `settle`, a run that was to be replaced is in its place again.

        Raises:
            InputError: if another process writes the run; or if it is to be resumed, and was killed with nothing saved
                while it replaced another.
            NothingSaved: instead of KeyboardInterrupt, if the run was to replace another and nothing can be resumed.
        """
        with hold_lock(self.path):
            self._recover()
            try:
                yield
            except BaseException as error:
                self._put_back()
                if isinstance(error, KeyboardInterrupt) and self.options.overwrite and not self._is_ours:
                    raise NothingSaved from error
                raise

    def _recover(self) -> None:
        """Tidies up after a process that was killed while it replaced a run, and brings up what is to be resumed."""
        if self.replaced_path.exists():
            say(f"a process was killed while it replaced the run {self.path}")
            if self.checkpoints() and any("validation" in record for record in self.metrics()):
                self.settle()
            else:
                self._put_back()
                if self.options.resume and not self.begun_path.exists():
                    raise InputError(
                        f"{self.path} is the run from before --overwrite: of the one to be resumed nothing was saved; "
                        "give --overwrite to begin it again, or --resume once more to go on with the old one"
                    )
        if self.options.resume and self.begun_path.exists():
            with writing(self.path):
                if self.path.exists():
                    self.path.rename(self.replaced_path)
                self.begun_path.rename(self.path)

    def _put_back(self) -> None:
        """Lets the old run take its place again, if it has not been replaced for good."""
        if not self.replaced_path.exists():
            return
        if self.checkpoints():
            self._discard(self.begun_path)
            self.path.rename(self.begun_path)
        else:
            self._discard(self.path)
        self.replaced_path.rename(self.path)
        self._is_ours = self.begun_path.exists()
        fate = "is kept, and --resume goes on with it" if self._is_ours else "had saved nothing, and is gone"
        say(f"{self.path} is again the run that was to be replaced; the new one {fate}")

    def settle(self) -> None:
        """Deletes the run that this one replaces, now that this one has been validated."""
        self._discard(self.replaced_path)

    def _discard(self, folder: Path) -> None:
        """Deletes a folder, which is never seen half deleted under its own name."""
        temporary = self.path.with_name(f".{self.path.name}.partial")
        shutil.rmtree(temporary, ignore_errors=True)
        if folder.exists():
            remove_folder(folder, temporary_name=temporary)

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
        """Makes the folder and writes the recipe; an existing run is taken up or moved aside, as the options say.

        Raises:
            InputError: if it cannot be written.
        """
        with writing(self.path):
            if not self.options.resume:
                self._discard(self.begun_path)
            if self.options.overwrite and self.path.exists():
                if self.replaced_path.exists():  # a run that was never validated is not worth keeping beside it
                    self._discard(self.path)
                else:
                    self.path.rename(self.replaced_path)
            self._is_ours = True
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

    def curve(self) -> list[dict[str, Any]]:
        """The same for the model's own folder: without what makes most of it, and says little beside the model."""
        return [{name: value for name, value in record.items() if name not in BULKY} for record in self.metrics()]

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
            if model.can_generate():
                model.generation_config.save_pretrained(self.path)


def _append(path: Path, record: dict[str, Any]) -> None:
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(_line(record))


def _line(record: dict[str, Any]) -> str:
    return json.dumps(nulled(record), ensure_ascii=False, allow_nan=False) + "\n"


def nulled(value: Any) -> Any:
    """The same for JSON, which has no numbers that are not finite: they become null, wherever they are in it."""
    if isinstance(value, Mapping):
        return {name: nulled(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [nulled(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _records(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]  # what follows the last line end was cut off by a crash
