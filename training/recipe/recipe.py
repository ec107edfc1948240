"""The options of a training run, and the sections that they are in."""

from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar, get_type_hints

from transformers import PreTrainedConfig

from .checkpoints import Checkpoints
from .cleaning import Cleaning
from .data import Corpora
from .evaluation import EvaluationOptions
from .guard import Guard
from .optimization import Optimization
from .run import RunOptions
from .tokenizer import TokenizerOptions

DataOptions = TypeVar("DataOptions", bound=Corpora, covariant=True)


@dataclass(kw_only=True)
class Recipe(Generic[DataOptions]):
    """A training run, whole."""

    run: RunOptions
    data: DataOptions
    cleaning: Cleaning
    tokenizer: TokenizerOptions
    model: dict[str, Any]
    optimization: Optimization
    guard: Guard
    checkpoints: Checkpoints
    evaluation: EvaluationOptions
    yaml: str
    """The recipe as YAML, every field given that makes a difference to the model: what is written into the run's folder
    and its card."""

    arguments: list[str] = field(default_factory=list, compare=False)
    """The words of the command line that it was read from."""


def list_sections(config_class: type[PreTrainedConfig], data_class: type) -> dict[str, type]:
    """The sections of a family's recipes by name, and the classes of their fields; those of `run` have no section.

    Args:
        config_class: the class of the model's configuration, which documents the fields of `model`.
        data_class: the class of the section `data`.
    """
    hints = get_type_hints(Recipe) | {"data": data_class, "model": config_class}
    return {name: hint for name, hint in hints.items() if name not in ("run", "yaml", "arguments")}


_READ_OFF_THE_TOKENIZER = {
    "vocab_size",
    "source_vocab_size",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
}

NOT_CHOSEN = {field.name for field in fields(PreTrainedConfig)} | _READ_OFF_THE_TOKENIZER | {"kwargs"}
"""Fields of a model's configuration that are no part of a recipe: inherited from transformers, or the tokenizer's."""
