"""What there is to know of a training objective outside of its own file."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...modeling.families import Family
from ..console.input_error import InputError
from ..data.splits import Splits
from ..data.tokenizers import TokenizerNeeds, Tokenizers
from ..evaluation.metrics import LOSS, validation_metrics
from ..recipe.data import ParallelData
from ..recipe.parsing import parse_recipe
from ..recipe.recipe import Recipe
from .base_model import check_overrides, defaults_of_base
from .protocols import Task
from .suitable_recipe import complete_recipe


@dataclass(frozen=True, kw_only=True)
class CardWords:
    """What a model card says of an objective."""

    title: str
    """Of the task, as the Hub writes it."""

    unit: str
    """What a split is counted in: sentence pairs, documents."""

    describe: Callable[[Mapping[str, Any], Sequence[str]], tuple[str, str]]
    """Configuration and languages -> the kind of model, and a sentence on what it does."""

    use: str = ""
    """Code that loads the model in a pipeline and calls it; {example} stands for an input. Empty where transformers has
    no pipeline for it."""

    generation: str = ""
    """Arguments of `generate()` in the card's second example."""

    call: str = ""
    """Code that uses `tokenizer` and `model`, where that is not `generate()`."""

    own_use: str = ""
    """Python that does the same with paperformer; {example} stands for an input."""

    own_command: str = ""
    """The command line that does it; {example} stands for an input, quoted for a shell."""

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

    open_splits: Callable[..., Splits]
    """Reads and cleans the text of a recipe; takes what `pair_splits` does."""

    make_task: Callable[[Recipe[Any], Splits, Tokenizers], Task]
    tokenizer_needs: Callable[[Recipe[Any]], TokenizerNeeds]
    """What the tokenizer of a recipe must have."""

    selects_by_outputs: bool
    """Whether validation makes outputs that the weights can be selected by."""

    card: CardWords
    has_card: bool = True
    """Whether a finished model gets a card; not one that others are only compared with, and that is never published."""

    @property
    def script(self) -> str:
        """The module that `accelerate launch -m` takes."""
        return f"paperformer.training.train_{self.name}"

    def command(self, arguments: Sequence[str]) -> str:
        """The command line that trains by a recipe, given the words that it is read from."""
        return f"accelerate launch -m {self.script} {shlex.join(arguments)}"

    def read_recipe(self, arguments: list[str]) -> Recipe[Any]:
        """Parses a command line into a recipe, and completes it where it names none.

        Raises:
            InputError: as `parse_recipe`, `complete_recipe` and `defaults_of_base`; also if the recipe is for another
                objective, or there is no such score to select by.
        """
        choices = [LOSS.name, *(metric.name for metric in validation_metrics())]
        of_base: dict[str, Any] = {}

        def defaults_of_this_base(given: Mapping[str, Any]) -> Mapping[str, Any]:
            of_base.update(defaults_of_base(given, self.family))
            return of_base

        recipe: Recipe[Any] = parse_recipe(
            arguments,
            self.family.config,
            self.data,
            # Of a language model, its data section says that it must be the loss.
            choices={"evaluation.select_by": choices} if self.selects_by_outputs else None,
            defaults={"objective": self.name},
            complete=partial(complete_recipe, self.name, is_parallel=issubclass(self.data, ParallelData)),
            more_defaults=defaults_of_this_base,
            prog=f"paperformer train {self.name}",
            description=f"{self.summary} from a recipe, --config RECIPE [overrides], or from a file without one, "
            f"--data.train FILE. On several devices, with the same options: accelerate launch -m {self.script}.",
        )
        if (given := recipe.run.objective) != self.name:
            raise InputError(f"the recipe's objective is {given}; train it with paperformer train {given}")
        check_overrides(recipe, of_base)
        return recipe
