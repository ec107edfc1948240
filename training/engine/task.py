"""What a training run needs to know about its model and data."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from transformers import PreTrainedModel

from ..card import SplitFacts
from ..data.batching import Batch


class Task(Protocol):
    """What a training run is about: its data, its model and its scores."""

    def build_model(self) -> PreTrainedModel:
        """The model with fresh weights."""

    def pools(self, epoch: int, first: int) -> Iterator[Sequence[Any]]:
        """The batches of an epoch, for all processes together, as `BatchStream` takes them."""

    def collate(self, batch: Any) -> Batch:
        """Tensors of one of those batches."""

    def longest_batch(self) -> Batch:
        """A batch that takes as much memory as any."""

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        """Scores on the validation split, among them `loss` in nats a token and the one to select by."""

    def validation_samples(self, model: PreTrainedModel) -> list[list[str]]:
        """A few outputs on the validation split, each after what it answers; the same inputs every time."""

    def evaluate(self, model: PreTrainedModel, split: str) -> tuple[dict[str, Any], list[str]]:
        """All scores on a whole split, as evaluation.json has them, and what the model put out for them."""

    def samples(self, outputs: list[str]) -> Sequence[Sequence[str]]:
        """A few of the outputs on the test split, each after what it answers, for the card."""

    def splits(self) -> list[SplitFacts]:
        """Sizes of the splits, for the card."""

    def describe_batches(self) -> str:
        """What an epoch of training is made of, in a line."""
