"""What every algorithm is told besides the texts."""

import sys
from dataclasses import dataclass
from typing import get_args

from .corpus import Normalization
from .reserved_tokens import ReservedTokens


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The arguments of `train_tokenizer`, with their defaults; see there.

    Raises:
        ValueError: One is out of its range.
    """

    vocab_size: int
    reserved: ReservedTokens
    prefix_space: bool
    """Without meaning to an algorithm that has none."""
    split_digits: bool
    min_frequency: int
    normalization: Normalization
    length: int | None
    show_progress: bool

    def __post_init__(self) -> None:
        if self.normalization not in get_args(Normalization):
            choices = ", ".join(get_args(Normalization))
            raise ValueError(f"normalization is {self.normalization!r}, and must be one of {choices}")
        if self.min_frequency < 1:
            raise ValueError(f"min_frequency is {self.min_frequency}, and must be at least 1")

    @property
    def show_bar(self) -> bool:
        """Whether bars are drawn: only in a terminal, since in a log they would be blank lines."""
        return self.show_progress and sys.stderr.isatty()
