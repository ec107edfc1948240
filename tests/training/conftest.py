"""Tiny corpora on disk, and recipes for tiny models of them."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from accelerate.state import AcceleratorState

from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from paperformer.training.engine import loop, training_state
from paperformer.training.recipe.data import ParallelData, TextData
from paperformer.training.recipe.parsing import parse_recipe
from paperformer.training.recipe.recipe import Recipe

SUBJECTS = {"A dog": "Ein Hund", "A cat": "Eine Katze", "The man": "Der Mann", "A child": "Ein Kind"}
VERBS = {"sleeps": "schläft", "runs away": "läuft weg", "sings": "singt", "waits in the long queue": "wartet lange"}
PAIRS = [(f"{s} {v}.", f"{t} {w}.") for s, t in SUBJECTS.items() for v, w in VERBS.items()]

TINY = {
    "cleaning.duplicates": "keep",  # the training text is the evaluation text, several times over
    "cleaning.leak_check": "false",
    "tokenizer.vocab_size": 300,
    "model.hidden_size": 16,
    "model.intermediate_size": 32,
    "model.num_attention_heads": 2,
    "model.dropout": 0.1,
    "optimization.warmup_steps": 4,
    "optimization.learning_rate": 0.01,
    "evaluation.validation_samples": 1,
}


def command_line(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


@pytest.fixture(scope="session")
def pairs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    for split, pairs in {"train": PAIRS * 3, "validation": PAIRS[:5], "test": PAIRS[7:12]}.items():
        for side, language in enumerate(("en", "de")):
            (folder / f"{split}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    return folder


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for split, repetitions in {"train": 6, "validation": 1, "test": 1}.items():
        (folder / f"{split}.txt").write_text("".join(f"{en} {de}\n" for en, de in PAIRS) * repetitions, "utf-8")
    return folder


@pytest.fixture
def seq2seq_options(pairs_folder: Path, tmp_path: Path) -> dict[str, Any]:
    """The command line of a run of a few steps, option by option."""
    return TINY | {
        "name": "tiny",
        "output_dir": tmp_path / "runs",
        "data.dataset": pairs_folder,
        "data.source_language": "en",
        "data.target_language": "de",
        "data.max_length": 40,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
        "optimization.max_steps": 6,
        "optimization.tokens_per_batch": 100,
        "evaluation.every_steps": 3,
        "evaluation.num_beams": 2,
        "evaluation.samples": 2,
    }


@pytest.fixture
def lm_options(text_folder: Path, tmp_path: Path) -> dict[str, Any]:
    """The command line of a run of a few steps, option by option."""
    return TINY | {
        "name": "tiny",
        "output_dir": tmp_path / "runs",
        "data.dataset": text_folder,
        "data.context_length": 16,
        "model.num_hidden_layers": 1,
        "optimization.max_steps": 6,
        "optimization.tokens_per_batch": 64,
        "evaluation.every_steps": 3,
        "evaluation.samples": 2,
    }


@pytest.fixture
def seq2seq_recipe(seq2seq_options: dict[str, Any]) -> Callable[..., Recipe[ParallelData]]:
    """Makes a recipe of the tiny run with some options changed."""
    return lambda **changes: parse_recipe(
        command_line(seq2seq_options | dotted(changes)), PaperformerSeq2SeqConfig, ParallelData
    )


@pytest.fixture
def lm_recipe(lm_options: dict[str, Any]) -> Callable[..., Recipe[TextData]]:
    """Makes a recipe of the tiny run with some options changed."""
    return lambda **changes: parse_recipe(command_line(lm_options | dotted(changes)), PaperformerLMConfig, TextData)


def dotted(changes: dict[str, Any]) -> dict[str, Any]:
    """optimization__max_steps=3 is --optimization.max_steps 3."""
    return {name.replace("__", "."): value for name, value in changes.items()}


@pytest.fixture(autouse=True, scope="session")
def one_measurement_for_all() -> Iterator[None]:
    """Measuring what this machine can do takes a second, and in float16 many."""
    measure = cache(loop.peak_flops_of)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "peak_flops_of", lambda device, _: measure(device, "no"))
        yield


@pytest.fixture(autouse=True, scope="session")
def one_reading_of_a_recipe() -> Iterator[None]:
    """A run reads its recipe again for each checkpoint, which takes tiny runs a tenth of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_state, "what_makes_batches", cache(training_state.what_makes_batches))
        yield


@pytest.fixture(autouse=True)
def fresh_accelerator() -> Iterator[None]:
    """Accelerate keeps one state a process, and refuses another precision than the first run's."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
