"""All that a run does before its first step (reading, cleaning, training a tokenizer, tokenising), and a report of it.

What is made is cached: the run itself, or several runs whose models differ, then begin at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from textwrap import shorten
from typing import Any

from .console.input_error import one_line_errors
from .data.cleaning.report import report_table
from .data.corpus import Corpus, TextStream
from .data.splits import SplitFacts
from .data.tokenizers import Tokenizers
from .recipe.recipe import Recipe
from .run import make_quiet, make_tokenizers
from .tasks.objective import Objective

ROWS_SHOWN = 2
CHARACTERS_SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a run of a recipe will read."""

    splits: list[SplitFacts]
    """Examples and tokens of the training, validation and test text."""

    report: dict[str, Any]
    """By split: where its text came from, what was left out and why, as in a run's data.json; none of a stream."""

    tokenizers: Tokenizers
    """Of the source and of the target: the same one twice, but for separate vocabularies."""

    batches: str
    """What an epoch is made of, in words."""


def prepare(objective: Objective, recipe: Recipe[Any], tell: Callable[[str], object]) -> Prepared:
    """Prepares a recipe's data.

    Args:
        objective: what the recipe is for.
        recipe: whose data.
        tell: called with lines for people as it goes.

    Raises:
        InputError: as the run itself would.
    """
    splits = objective.open_splits(recipe)
    for name in ("train", "validation", "test"):
        for line in _corpus_lines(f"data.{name}", getattr(splits, name)):
            tell(line)
    tokenizers = make_tokenizers(objective, recipe, splits)
    sizes = " and ".join(f"{len(tokenizer):,}" for tokenizer in dict.fromkeys(tokenizers))
    tell(f"tokenizer: {sizes} entries")
    task = objective.make_task(recipe, splits, tokenizers)
    facts = [task.batches.facts(), *task.scoring.facts()]
    for split in facts:
        if split.tokens is not None:
            tell(f"{split.name}: {split.examples:,} examples, {split.tokens:,} tokens")
    batches = task.batches.describe()
    tell(batches)
    return Prepared(splits=facts, report=splits.report(), tokenizers=tokenizers, batches=batches)


def main(objective: Objective, arguments: list[str]) -> None:
    """Runs `paperformer prepare`: bad input ends in one line and exit code 2."""
    make_quiet()
    with one_line_errors():
        prepare(objective, objective.read_recipe(arguments), partial(print, flush=True))


def _corpus_lines(field: str, corpus: Corpus | TextStream) -> Iterator[str]:
    if isinstance(corpus, Corpus):
        yield report_table(corpus.report["cleaning"], field)
        for source in corpus.report["sources"]:
            yield f"    {source['name']}: {source['kept']:,} rows"
            for reason, count in source["bad_lines"].items():
                places = source["places"].get(reason)
                yield f"        {count:,} left out ({reason}){f', first {places[0]}' if places else ''}"
    else:
        yield f"{field}: read anew each epoch (data.streaming)"
    columns = ("source", "target") if corpus.is_parallel else ("text",)
    texts = islice(corpus.texts(*columns), ROWS_SHOWN * len(columns))
    for row in zip(*[texts] * len(columns), strict=True):
        yield "    " + " | ".join(shorten(text, CHARACTERS_SHOWN, placeholder=" …") for text in row)
