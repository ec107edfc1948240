"""Exercises in their shortest form, in this process, and what they have written."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from accelerate.state import AcceleratorState

from paperformer.cli import main
from paperformer.training.engine import loop, training_state
from paperformer.training.recipe import parsing


@dataclass(frozen=True)
class Done:
    """An exercise that was done."""

    folder: Path
    card: str
    figures: Any


Do = Callable[..., Done]


def do(output_dir: Path, *words: object, **options: object) -> Done:
    """Does an exercise by the command line."""
    AcceleratorState._reset_state(reset_partial_state=True)
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    main(["exercise", *map(str, words), *given, "--output_dir", str(output_dir)])
    folder = output_dir / str(words[0])
    card = (folder / "README.md").read_text("utf-8")
    assert "\n## Again\n\n```bash\npaperformer exercise " + str(words[0]) in card
    assert re.search(r"\d[\d.]* (minutes|seconds) (in all|of training)", card)
    for fact in ("Software: paperformer ", "torch ", "written by the command"):
        assert fact in card
    for line in card.splitlines():
        if line.startswith("!["):
            assert (folder / line.partition("](")[2].rstrip(")")).read_bytes().startswith(b"<?xml")
    return Done(folder, card, json.loads((folder / "figures.json").read_text("utf-8")))


@pytest.fixture(scope="session", autouse=True)
def quick_runs() -> Iterator[None]:
    """Building parsers, reading a recipe again and measuring the machine take a short run most of its time."""
    measure = cache(loop.peak_flops_of)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "recipe_parser", cache(parsing.recipe_parser))
        patch.setattr(training_state, "what_makes_batches", cache(training_state.what_makes_batches))
        patch.setattr(loop, "peak_flops_of", lambda device, _: measure(device, "no"))
        yield
