"""What there is to know of a training objective outside of its own file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...modeling.families import Family
from ..data.splits import Splits
from ..data.tokenizers import Tokenizers
from ..evaluation.metrics import LOSS, output_metrics
from ..recipe.parsing import parse_recipe
from ..recipe.recipe import Recipe
from .protocols import Task


@dataclass(frozen=True, kw_only=True)
class CardWords:
    """What a model card says of an objective."""

    title: str
    """Of the task, as the Hub writes it."""

    unit: str
    """What a split is counted in: sentence pairs, documents."""

    describe: Callable[[Mapping[str, Any], Sequence[str]], tuple[str, str]]
    """Configuration and languages -> the kind of model, and a sentence on what it does."""

    use: str
    """Code that loads the model in a pipeline and calls it; {example} stands for an input."""

    generation: str = ""
    """Arguments of `generate()` in the card's second example."""

    about_scores: str
    """What to know before comparing them."""

    sample_columns: Sequence[str] = ()
    """Titles of a table of samples; without them a sample is a prompt and its continuation."""

    limits: Callable[[int], list[str]]
    """Longest input in tokens -> what not to expect."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What a family of models is trained to do: a recipe of it makes a task.

    A new one is a file beside this one, and an entry of `OBJECTIVES` (registry.py).
    """

    name: str
    """On the command line: `paperformer train NAME`, and the script `training/train_NAME.py`."""

    summary: str
    """What training does, in some words."""

    hub_task: str
    """The task's name on the Hub."""

    family: Family
    data: type
    """The class of the recipes' section `data`."""

    own_field: str
    """A field that recipes of no other objective have, by which a run's recipe is known."""

    open_splits: Callable[[Recipe[Any]], Splits]
    """Reads and cleans the text."""

    make_task: Callable[[Recipe[Any], Splits, Tokenizers], Task]
    max_length: Callable[[Recipe[Any]], int | None]
    """The longest input in tokens, for a tokenizer that is trained."""

    selects_by_outputs: bool
    """Whether validation makes outputs that the weights can be selected by."""

    card: CardWords

    @property
    def script(self) -> str:
        """The module that `accelerate launch -m` takes."""
        return f"paperformer.training.train_{self.name}"

    def read_recipe(self, arguments: list[str]) -> Recipe[Any]:
        """Parses a command line into a recipe.

        Raises:
            InputError: as `parse_recipe`; also if there is no such score to select by.
        """
        choices = [LOSS.name, *(metric.name for metric in output_metrics())]
        return parse_recipe(
            arguments,
            self.family.config,
            self.data,
            # Of a language model, its data section says that it must be the loss.
            choices={"evaluation.select_by": choices} if self.selects_by_outputs else None,
            prog=f"train_{self.name}",
            description=f"{self.summary}: accelerate launch -m {self.script} --config RECIPE [overrides].",
        )
