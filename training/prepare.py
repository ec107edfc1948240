"""All that a run does before its first step (reading, cleaning, training a tokenizer, tokenising), and a report of it.

What is made is cached: the run itself, or several runs whose models differ, then begin at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol

from .console.input_error import InputError, one_line_errors
from .data.cleaning.report import report_table
from .data.corpus import Corpus, TextStream, TextWork
from .data.splits import SplitFacts, Splits, cache_folder
from .data.tokenizers import Tokenizers
from .data.tokenizing import Pieces, TokenWork, tokenized_documents, tokenized_pairs
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


class Division(Protocol):
    """Divides the work on the training text, where this process does not do it alone; the result is the same."""

    def begin(self) -> object:
        """Called before anything is read; raises what can be known by then."""

    def write_text(self, folder: Path, work: TextWork) -> None:
        """As `corpus.write_text`."""

    def encode(self, folder: Path, work: TokenWork) -> Pieces:
        """As `work.encode` of all its chunks, for the folder that the ids are written to."""

    def finish(self, cache: Path) -> None:
        """Called when all is done, with the folder of the caches."""


def prepare(
    objective: Objective, recipe: Recipe[Any], tell: Callable[[str], object], division: Division | None = None
) -> Prepared:
    """Prepares a recipe's data.

    Args:
        objective: what the recipe is for.
        recipe: whose data.
        tell: called with lines for people as it goes.
        division: by whom; by default this process.

    Raises:
        InputError: as the run itself would; also if the work is to be divided and the text is read anew each epoch.
    """
    if division and recipe.data.streaming:
        raise InputError(
            "data.streaming is true: the text is read anew each epoch, so that a cluster has nothing to prepare; leave "
            "out one of the two"
        )
    if division:
        division.begin()
    splits = objective.open_splits(recipe, division.write_text) if division else objective.open_splits(recipe)
    for name in ("train", "validation", "test"):
        for line in _corpus_lines(f"data.{name}", getattr(splits, name)):
            tell(line)
    tokenizers = make_tokenizers(objective, recipe, splits)
    sizes = " and ".join(f"{len(tokenizer):,}" for tokenizer in dict.fromkeys(tokenizers))
    tell(f"tokenizer: {sizes} entries")
    if division:
        _tokenize(objective, recipe, splits, tokenizers, division)
    task = objective.make_task(recipe, splits, tokenizers)
    facts = [task.batches.facts(), *task.scoring.facts()]
    for split in facts:
        if split.tokens is not None:
            tell(f"{split.name}: {split.examples:,} examples, {split.tokens:,} tokens")
    batches = task.batches.describe()
    tell(batches)
    return Prepared(splits=facts, report=splits.report(), tokenizers=tokenizers, batches=batches)


def _tokenize(
    objective: Objective, recipe: Recipe[Any], splits: Splits, tokenizers: Tokenizers, division: Division
) -> None:
    """Makes the training text's ids where the task will find them."""
    cache, train = cache_folder(recipe), splits.train
    assert isinstance(train, Corpus)  # no stream
    if train.is_parallel:
        tokenized_pairs(cache, train, tokenizers, division.encode)
    else:
        has_placeholders = objective.tokenizer_needs(recipe).has_placeholders
        tokenized_documents(cache, train, tokenizers.source, has_placeholders=has_placeholders, encode=division.encode)
    division.finish(cache)


def main(objective: Objective, arguments: list[str], division: Division | None = None) -> None:
    """Runs `paperformer prepare`: bad input ends in one line and exit code 2."""
    make_quiet()
    with one_line_errors():
        prepare(objective, objective.read_recipe(arguments), partial(print, flush=True), division)


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
