"""What every algorithm is told besides the texts."""

import sys
from dataclasses import dataclass

from .reserved_tokens import ReservedTokens


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The arguments of `train_tokenizer`, checked and with their defaults; see there."""

    vocab_size: int
    reserved: ReservedTokens
    prefix_space: bool
    split_digits: bool
    min_frequency: int
    length: int | None
    show_progress: bool

    @property
    def show_bar(self) -> bool:
        """Whether bars are drawn: only in a terminal, since in a log they would be blank lines."""
        return self.show_progress and sys.stderr.isatty()
