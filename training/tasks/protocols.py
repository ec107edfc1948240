"""What a training run needs to know of what it trains: a model, batches for it, and scores of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from transformers import PreTrainedModel

from ..data.batches.token_budget import Batch
from ..data.splits import SplitFacts
from ..evaluation.evaluation_file import Evaluation
from ..evaluation.metrics import Score


class Batches(Protocol):
    """Batches of the training text."""

    def pools(self, epoch: int, first: int) -> Iterator[Sequence[Any]]:
        """The batches of an epoch, for all processes together, as `BatchStream` takes them."""

    def collate(self, batch: Any) -> Batch:
        """Tensors of one of those batches."""

    def longest_batch(self) -> Batch:
        """A batch that takes as much memory as any."""

    def facts(self) -> SplitFacts:
        """Size of the training text, as far as it is known."""

    def describe(self) -> str:
        """What an epoch of training is made of, in a line."""


class Scoring(Protocol):
    """Scores and samples on the validation and the test split."""

    def validate(self, model: PreTrainedModel) -> list[Score]:
        """Scores on the validation split, among them the loss and the one to select by."""

    def validation_samples(self, model: PreTrainedModel) -> list[list[str]]:
        """A few outputs on the validation split, each after what it answers; the same inputs every time."""

    def evaluate(self, model: PreTrainedModel, split: str) -> Evaluation:
        """All scores on a whole split, and what the model put out for them."""

    def samples(self, outputs: Sequence[str]) -> list[tuple[str, ...]]:
        """A few of the outputs on the test split, each after what it answers, for the card."""

    def facts(self) -> list[SplitFacts]:
        """Sizes of the splits that are scored."""


@dataclass
class Task:
    """What a run trains."""

    build_model: Callable[[], PreTrainedModel]
    """Makes the model, with fresh weights."""

    batches: Batches
    scoring: Scoring
    flops_of: Callable[[Batch], float] | None = None
    """FLOPs of a batch, forward and backward, where the model is of none of the families."""
