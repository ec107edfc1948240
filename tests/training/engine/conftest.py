"""Tiny runs of the engine, ways to disturb them, and processes that compute together."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from accelerate import Accelerator

from paperformer.tokenization import train_tokenizer
from paperformer.training.data.splits import pair_splits, text_splits
from paperformer.training.data.tokenizers import Tokenizers
from paperformer.training.engine.loop import FittedModel, fit
from paperformer.training.recipe.data import ParallelData, TextData
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.run_folder import RunFolder
from paperformer.training.tasks.language_modeling import language_modeling_task
from paperformer.training.tasks.protocols import Task
from paperformer.training.tasks.translation import translation_task

from . import fork_server

Train = Callable[..., tuple[FittedModel, RunFolder]]
Together = Callable[..., list[str]]

BY_THE_CLOCK = {"seconds", "tokens_per_second", "memory", "utilisation", "joules"}


@pytest.fixture
def make_task(
    lm_recipe: Callable[..., Recipe[TextData]], seq2seq_recipe: Callable[..., Recipe[ParallelData]]
) -> Callable[[Recipe[Any]], Task]:
    """Makes the task of a recipe, with a tokenizer of 300 entries."""

    def make(recipe: Recipe[Any]) -> Task:
        if isinstance(recipe.data, ParallelData):
            splits = pair_splits(recipe)
            tokenizer = train_tokenizer(splits.train.texts("source", "target"), 300, append_eos=True)
            return translation_task(recipe, splits, Tokenizers(tokenizer, tokenizer))
        splits = text_splits(recipe)
        tokenizer = train_tokenizer(splits.train.texts("text"), 300, append_eos=False)
        return language_modeling_task(recipe, splits, Tokenizers(tokenizer, tokenizer))

    return make


@pytest.fixture
def train(make_task: Callable[[Recipe[Any]], Task]) -> Train:
    """Trains a tiny model by a recipe; `change` may alter the task before."""

    def run(recipe: Recipe[Any], change: Callable[[Task], Any] = lambda task: None) -> tuple[FittedModel, RunFolder]:
        task = make_task(recipe)
        # What is changed is what the engine takes, and not what batches do among themselves.
        task.batches = SimpleNamespace(
            **{name: getattr(task.batches, name) for name in ("pools", "collate", "longest_batch")}
        )  # type: ignore
        change(task)
        folder = RunFolder(recipe.run)
        folder.create(recipe.yaml)
        return fit(task, recipe, folder, Accelerator(mixed_precision="no")), folder

    return run


@pytest.fixture(scope="session")
def together() -> Iterator[Together]:
    """Runs a script in a process, or in some that can meet (`RANK`, `MASTER_PORT` and so on are set).

    Returns what each wrote to its standard output. They are forks of one process that has imported everything, which is
    started when it is first needed.
    """
    server: list[subprocess.Popen[str]] = []

    def run(
        script: str | Path,
        folder: Path,
        *,
        number: int = 1,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> list[str]:
        if not server:
            command = [sys.executable, fork_server.__file__]
            settings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            server.append(subprocess.Popen(command, env=settings, text=True, start_new_session=True, **pipes))
        (process,) = server
        assert process.stdin is not None
        assert process.stdout is not None
        request: dict[str, Any] = {
            "script": str(script),
            "arguments": arguments,
            "number": number,
            "folder": str(folder),
        }
        request |= {"environment": dict(environment)}
        print(json.dumps(request), file=process.stdin, flush=True)
        try:
            codes = json.loads(process.stdout.readline())
        except BaseException:  # a timeout: the next test gets another server
            os.killpg(server.pop().pid, signal.SIGKILL)
            raise
        errors = [(folder / f"errors-{rank}.txt").read_text() for rank in range(number)]
        assert codes == [0] * number, "\n\n".join(text[-3000:] for text in errors)
        return [(folder / f"output-{rank}.txt").read_text() for rank in range(number)]

    yield run
    for process in server:
        with process:
            assert process.stdin is not None
            process.stdin.close()


def figures(folder: RunFolder) -> list[dict[str, Any]]:
    """metrics.jsonl without what the clock and the machine say."""
    return [
        {name: value for name, value in record.items() if name not in BY_THE_CLOCK}
        for record in folder.metrics()
        if "hardware" not in record and "energy" not in record  # a line for each start and each end
    ]


def signal_at_batch(number: int, which: signal.Signals) -> Callable[[Task], None]:
    """Makes a task send this process a signal while its n-th batch is made."""

    def change(task: Task) -> None:
        collate, calls = task.batches.collate, iter(range(1, 1000))

        def collate_and_signal(batch: Any) -> Any:
            if next(calls) == number:
                os.kill(os.getpid(), which)
            return collate(batch)

        task.batches.collate = collate_and_signal  # type: ignore[method-assign]

    return change
