"""The card of an exercise: what was done, what came of it, and all that is needed to do it again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..training.atomic_files import replace_file, writing
from ..training.engine.devices.hardware import describe_hardware
from ..training.reporting.markdown import fenced
from ..training.run_folder import nulled

CARD, FIGURES = "README.md", "figures.json"
SOFTWARE = ("paperformer", "torch", "transformers", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a card says."""

    title: str
    summary: str
    """What was done, in a paragraph."""

    sections: Sequence[str]
    """Results, in Markdown, the most important first."""

    figures: Any
    """The same results as plain values, for programs."""

    command: str
    seed: int | None
    """None where nothing is drawn."""
    minutes: float
    """What `minutes_of` says."""

    minutes_of: str = "in all"
    hardware: str = ""
    """By default, what this process computes on."""

    software: Sequence[str] = SOFTWARE
    """Packages whose versions make a difference."""

    def __str__(self) -> str:
        """The card as Markdown."""
        seed = "Nothing is drawn at random" if self.seed is None else f"Seed {self.seed}"
        versions = ", ".join(f"{name} {version(name)}" for name in self.software)
        hardware = self.hardware or describe_hardware()
        took = f"{self.minutes:,.1f} minutes" if self.minutes >= 1 else f"{60 * self.minutes:.1f} seconds"
        return "\n\n".join(
            [
                f"# {self.title}",
                f"{self.summary}\nEvery figure on this page was written by the command.",
                *self.sections,
                "## Again",
                fenced(self.command, "bash"),
                f"{seed}. {took} {self.minutes_of}, on {hardware}. Software: {versions}.",
            ]
        )


def write_card(folder: Path, card: Card) -> Path:
    """Writes README.md and figures.json into a folder, and returns the path of the card.

    Raises:
        InputError: if they cannot be written.
    """
    path = folder / CARD
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
    figures = json.dumps(nulled(card.figures), indent=2, ensure_ascii=False, allow_nan=False)
    replace_file(folder / FIGURES, f"{figures}\n")
    replace_file(path, f"{card}\n")
    return path
