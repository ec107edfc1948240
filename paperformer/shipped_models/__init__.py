"""Trained models that come with the package, found by their names where no folder is called so.

`manifest.json` says what each is for and which files it has; docs/demo.md how they were made.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class ShippedModel:
    """A model's folder within the package."""

    name: str

    task: str
    """As transformers calls it."""

    about: str
    """What it does, in a line."""

    example: str
    """A text that it can do something with."""

    sha256: dict[str, str]
    """Of each of its files, by its name."""

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return FOLDER / self.name


@cache
def shipped_models() -> dict[str, ShippedModel]:
    """All of them by their names."""
    manifest = json.loads((FOLDER / "manifest.json").read_text("utf-8"))
    return {name: ShippedModel(name, **facts) for name, facts in manifest.items()}


def find_shipped(name: str) -> Path | None:
    """The folder of a shipped model; None where there is no such model, or a file or folder here that is called so."""
    model = shipped_models().get(name)
    return None if model is None or Path(name).exists() else model.folder


def describe_shipped() -> str:
    """Their names, for messages."""
    return ", ".join(shipped_models())
