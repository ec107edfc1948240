"""Runs that are killed, each in a child of this process, because importing torch takes longer than the runs.

python killed_runs.py CASES.json: a list of runs, one after the other, each with the `arguments` of the command line, a
`tokenizer`, and perhaps the `instant` at which the process is to kill itself. How each child ended goes to standard
output, a line each: 0, or the signal with a minus.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.training import atomic_files, run_folder
from paperformer.training.data.splits import text_splits
from paperformer.training.data.tokenizers import load_tokenizers
from paperformer.training.engine import loop, step
from paperformer.training.engine.checkpoints import snapshot as checkpoints
from paperformer.training.engine.loop import fit
from paperformer.training.recipe import parsing
from paperformer.training.recipe.data import TextData
from paperformer.training.recipe.parsing import parse_recipe
from paperformer.training.reporting import recorder
from paperformer.training.run_folder import RunFolder
from paperformer.training.tasks.language_modeling import LanguageModelScoring, language_modeling_task


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(number: int, function: Callable[..., Any], *, before: bool = True) -> Callable[..., Any]:
    """The function, but the process dies at its n-th call, before or after it."""
    calls = iter(range(1, 10_000))

    def call(*arguments: Any, **options: Any) -> Any:
        is_last = next(calls) == number
        if is_last and before:
            die()
        result = function(*arguments, **options)
        if is_last:
            die()
        return result

    return call


INSTANTS: dict[str, Callable[[], None]] = {
    "in a step": lambda: setattr(step, "clip_gradients", at_call(5, step.clip_gradients)),
    "after the weights are saved": lambda: setattr(checkpoints.torch, "save", at_call(3, checkpoints.torch.save)),
    "before the manifest": lambda: setattr(checkpoints, "_fingerprint", at_call(8, checkpoints._fingerprint)),
    "before the checkpoint has its name": lambda: setattr(atomic_files, "_sync", at_call(2, atomic_files._sync)),
    "while the checkpoint is verified": lambda: setattr(loop, "find_damage", at_call(2, loop.find_damage)),
    "while old checkpoints are deleted": lambda: setattr(shutil, "rmtree", at_rmtree()),
    "while a line is written": lambda: setattr(run_folder, "_append", half_a_line(8)),
    "in a validation": lambda: setattr(LanguageModelScoring, "validate", at_call(2, LanguageModelScoring.validate)),
}


def at_rmtree() -> Callable[..., Any]:
    """Dies half-way through deleting a checkpoint."""
    remove = shutil.rmtree

    def call(path: Any, *arguments: Any, **options: Any) -> None:
        if "step-" in str(path) and Path(path).exists():
            next(Path(path).iterdir()).unlink()
            die()
        remove(path, *arguments, **options)

    return call


def half_a_line(number: int) -> Callable[..., Any]:
    append, calls = run_folder._append, iter(range(1, 10_000))

    def call(path: Path, record: dict[str, Any]) -> None:
        if next(calls) == number:
            with path.open("a") as file:
                file.write('{"step": ')
            die()
        append(path, record)

    return call


def run(case: dict[str, Any]) -> None:
    if "instant" in case:
        INSTANTS[case["instant"]]()
    recorder.LOG_EVERY = 1
    loop.peak_flops_of = lambda *_: 1e12  # not worth a second each time
    recipe = parse_recipe(case["arguments"], PaperformerLMConfig, TextData)
    task = language_modeling_task(recipe, text_splits(recipe), load_tokenizers(Path(case["tokenizer"])))
    folder = RunFolder(recipe.run)
    folder.check(recipe)
    folder.create(recipe.yaml)
    fit(task, recipe, folder, Accelerator(cpu=True, mixed_precision="no"))


if __name__ == "__main__":
    parsing.recipe_parser(PaperformerLMConfig, TextData)  # made here, once for all children
    for one in json.loads(Path(sys.argv[1]).read_text()):
        child = os.fork()
        if child == 0:
            run(one)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
