"""Tiny runs of the engine, and ways to disturb them."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from accelerate import Accelerator

from paperformer.tokenization import train_tokenizer
from paperformer.training.corpora import pair_splits, text_splits
from paperformer.training.engine.loop import FittedModel, fit
from paperformer.training.language_modeling import LanguageModelingTask
from paperformer.training.options.data import ParallelData, TextData
from paperformer.training.recipe import Recipe
from paperformer.training.run_folder import RunFolder
from paperformer.training.run_tokenizers import Tokenizers
from paperformer.training.translation import TranslationTask

Task = LanguageModelingTask | TranslationTask
Train = Callable[..., tuple[FittedModel, RunFolder]]

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
            return TranslationTask(recipe, splits, Tokenizers(tokenizer, tokenizer))
        splits = text_splits(recipe)
        tokenizer = train_tokenizer(splits.train.texts("text"), 300, append_eos=False)
        return LanguageModelingTask(recipe, splits, Tokenizers(tokenizer, tokenizer))

    return make


@pytest.fixture
def train(make_task: Callable[[Recipe[Any]], Task]) -> Train:
    """Trains a tiny model by a recipe; `change` may alter the task before."""

    def run(recipe: Recipe[Any], change: Callable[[Task], Any] = lambda task: None) -> tuple[FittedModel, RunFolder]:
        task = make_task(recipe)
        change(task)
        folder = RunFolder(recipe.run)
        folder.create(recipe.yaml)
        return fit(task, recipe, folder, Accelerator(mixed_precision="no")), folder

    return run


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
        collate, calls = task.collate, iter(range(1, 1000))

        def collate_and_signal(batch: Any) -> Any:
            if next(calls) == number:
                os.kill(os.getpid(), which)
            return collate(batch)

        task.collate = collate_and_signal  # type: ignore[method-assign]

    return change
