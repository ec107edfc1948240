"""What a format of another engine is: what it can say, how a model is written in it, and how that is run again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ...training.console.input_error import InputError

TOLERANCE = 1e-4
"""Largest difference of two values that rounding in float32 explains, as a part of the largest one, at least of 1."""

Ids = Sequence[Sequence[int]]
"""Token ids, a sequence for each text."""


@dataclass(frozen=True)
class Exportable:
    """A finished model, on the CPU in float32, and what reads and writes its text."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase | None
    """Of the translations, where it is not the tokenizer of the sources."""

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.model.config

    @property
    def output_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of what the model writes."""
        return self.tokenizer if self.target_tokenizer is None else self.target_tokenizer


class Engine(Protocol):
    """A model that runs, here or elsewhere."""

    def values(self, inputs: Ids, outputs: Ids) -> list[np.ndarray]:
        """What two engines are compared by.

        Args:
            inputs: sources; of a language model prompts, of at least one token.
            outputs: of each, the tokens that follow, without a start token; nothing of an encoder.

        Returns:
            For each, the log-probability of every output token, (T,); of an encoder the states, (T, E).
        """

    def decode(self, inputs: Ids, *, num_beams: int, length_penalty: float, max_new_tokens: int) -> list[list[int]]:
        """Translations, or continuations without their prompts: ids up to the end token and without it."""

    def run(self, inputs: Ids, *, num_beams: int, length_penalty: float, max_new_tokens: int) -> None:
        """Decodes the fastest way that there is, for its time to be taken."""
        self.decode(inputs, num_beams=num_beams, length_penalty=length_penalty, max_new_tokens=max_new_tokens)


@dataclass(frozen=True)
class Refusal:
    """An option that a format cannot say.

    Args:
        field: of the configuration.
        applies: whether a configuration has a value of it that cannot be said.
        reason: why, as the end of a sentence.
        remedy: what to do instead.
    """

    field: str
    applies: Callable[[Any], bool]
    reason: str
    remedy: str

    def error(self, config: PreTrainedConfig, title: str) -> InputError:
        """The line that names the option, its value, the reason and the way out."""
        return InputError(
            f"{self.field} is {getattr(config, self.field)!r}, which {title} cannot say: {self.reason}; {self.remedy}"
        )


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of another engine.

    Args:
        name: on the command line.
        title: in sentences.
        packages: the modules that have to be installed.
        extra: of paperformer's, which brings them.
        families: which it is for, and of each the fields on top of which its options are to be had.
        quantizations: how weights can be stored; the first is float32.
        of_encoder: what of an encoder can be had, and is compared: last_hidden_state, or logits of masked tokens.
        rounding: for one of them, what it makes of a weight: what that changes in our own model is what the
            quantisation explains.
        refusals: what cannot be said.
        tolerance: what may differ in float32, see `TOLERANCE`.
        compared_tokens: of each sequence, at the most; where each is a call of its own.
        check_text: raises InputError if the engine, which reads text itself, does so otherwise than our tokenizer.
        write: puts the model into an empty folder.
        open: runs what was written.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    extra: str
    families: Mapping[str, Sequence[Mapping[str, Any]]]
    quantizations: tuple[str, ...]
    of_encoder: str = "last_hidden_state"
    rounding: Callable[[str, torch.Tensor], torch.Tensor]
    refusals: Sequence[Refusal]
    tolerance: float = TOLERANCE
    compared_tokens: int | None = None
    check_text: Callable[[Engine, Exportable], None] | None = None
    write: Callable[[Exportable, Path, str], None]
    open: Callable[[Path], Engine]

    def refused(self, config: PreTrainedConfig) -> Iterator[Refusal]:
        """What of a configuration the format cannot say."""
        return (refusal for refusal in self.refusals if refusal.applies(config))

    def check(self, config: PreTrainedConfig) -> None:
        """Raises InputError if the format cannot say a configuration."""
        if not is_family(config, *self.families):
            *others, last = (f"paperformer-{family}" for family in self.families)
            raise InputError(f"{self.title} is for {', '.join([*others, last])}; this is a {config.model_type}")
        for refusal in self.refused(config):
            raise refusal.error(config, self.title)

    def check_installed(self) -> None:
        """Raises InputError if a package is missing."""
        for package in self.packages:
            require(package, self.extra)


def require(package: str, extra: str) -> Any:
    """An optional package, imported.

    Raises:
        InputError: if it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise InputError(f"{package} is missing; install it with: pip install 'paperformer[{extra}]'") from error


def is_family(config: PreTrainedConfig, *families: str) -> bool:
    """Whether a configuration is of one of these families: seq2seq, lm, encoder."""
    return config.model_type.removeprefix("paperformer-") in families
