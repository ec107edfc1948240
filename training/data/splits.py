"""The corpora that a recipe names: opened, cleaned, cached; evaluation sets first, so that training can be checked."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..console.input_error import InputError
from ..recipe.cleaning import Cleaning
from ..recipe.data import Corpora, ParallelData, RunningText
from ..recipe.recipe import Recipe
from .corpus import Corpus, NothingLeftError, TextStream, WriteText, build_corpus
from .hold_out import HeldOut, Part
from .readers.hub_datasets import HubDataset
from .readers.reader import Reader
from .readers.sources import Source, name_domains, pair_reader, parse_sources, text_reader
from .text.chunks import DOMAIN

OpenSource = Callable[[Source, bool], Reader]
"""Of a source, and whether its chunks are to have the domain of each row, the reader."""

# Evaluation sets are taken as they are: references must be raw text. Only rows without text are left out.
AS_THEY_ARE = Cleaning(
    normalization="none",
    strip=False,
    control_characters=False,
    mojibake=False,
    max_characters=0,
    max_length_ratio=0,
    drop_copies=False,
    leak_check=False,
    duplicates="keep",
)


@dataclass(frozen=True)
class Splits:
    """The text of a run."""

    train: Corpus | TextStream
    validation: Corpus
    test: Corpus
    weights: list[float]
    """Of the training sources (see `mixed_epoch`)."""

    def report(self) -> dict[str, Any]:
        """What each split was read from, what was left out of it and why, and which folder of the cache holds it; that
        of a stream is not known before."""
        corpora = {"train": self.train, "validation": self.validation, "test": self.test}
        return {
            split: corpus.report | {"folder": corpus.folder.name}
            for split, corpus in corpora.items()
            if isinstance(corpus, Corpus)
        }


@dataclass(frozen=True, kw_only=True)
class SplitFacts:
    """One part of a data set."""

    name: str
    """train, validation, test, or what the data set calls it."""

    examples: int | None
    """Sentence pairs of a translation corpus, documents of running text; None if they were streamed."""

    tokens: int | None = None
    """Tokens of the model's vocabulary, of both languages together; None if they were not counted."""


def pair_splits(recipe: Recipe[ParallelData], write_training_text: WriteText | None = None) -> Splits:
    """Sentence pairs of a recipe's training, validation and test split.

    Args:
        recipe: whose data.
        write_training_text: writes it if it is not in the cache; by default this process.

    Raises:
        InputError: if a source cannot be read, holds a bad line, or has nothing left after cleaning.
    """
    data = recipe.data
    languages = (data.source_language, data.target_language)
    return _splits(
        recipe,
        languages,
        lambda source, with_domains: pair_reader(source, *languages, with_domains=with_domains),
        write_training_text,
    )


def text_splits(recipe: Recipe[RunningText], write_training_text: WriteText | None = None) -> Splits:
    """Running text of a recipe's training, validation and test split; takes and raises what `pair_splits` does."""
    data = recipe.data
    language = data.language or "und"  # undetermined, ISO 639-2

    def open_source(source: Source, with_domains: bool) -> Reader:
        return text_reader(source, data.text_column, data.documents, with_domains=with_domains)

    if data.hold_out > 0 and any(source.domain_column is not None for source in _sources(data, "test")):
        raise InputError(
            "data.hold_out is given, and a source has a domain_column; of running text whole sections are held out, so "
            "give data.test instead"
        )
    return _splits(recipe, (language,), open_source, write_training_text)


def training_sources(data: Corpora) -> list[Source]:
    """What a recipe's training text comes from."""
    return _sources(data, "train")


def domains_of_test(data: Corpora) -> list[str]:
    """The domain of each source of a recipe's test split."""
    return name_domains(_sources(data, "test"))


def domains_of_rows(data: Corpora, test: Corpus) -> list[str]:
    """The domain of each row of a recipe's test split: by its column, else that of its source."""
    names = np.repeat(domains_of_test(data), test.sizes).tolist()
    if DOMAIN not in test.dataset.column_names:
        return names
    rows = chain.from_iterable(chunk.column(DOMAIN).to_pylist() for chunk in test.chunks())
    return [said.strip() or name for said, name in zip(rows, names, strict=True)]


def cache_folder(recipe: Recipe[Any]) -> Path:
    """Where a recipe's clean and tokenised text is kept."""
    return Path(recipe.data.cache_dir or Path(recipe.run.output_dir) / ".cache").expanduser()


def _check_tags(recipe: Recipe[Any], sources: list[Source]) -> None:
    options = recipe.tokenizer
    for source in sources:
        if source.tag is not None and options.path is None and source.tag not in options.user_symbols:
            raise InputError(
                f"{source.path or source.hub}: tag is {source.tag}; tokenizer.user_symbols must have it, so that it is "
                "one token"
            )


def _streaming(reader: Reader) -> Reader:
    if isinstance(reader, HeldOut):
        return replace(reader, reader=_streaming(reader.reader))
    return replace(reader, streaming=True) if isinstance(reader, HubDataset) else reader


def _sources(data: Corpora, split: str) -> list[Source]:
    if data.hold_out > 0:
        split = "train"
    return parse_sources(getattr(data, split), f"data.{split}", data.dataset, data.config)


def _part_of(reader: Reader, split: Part, share: float) -> Reader:
    return HeldOut(reader=reader, part=split, share=share) if share > 0 else reader


def _splits(
    recipe: Recipe[Any], languages: tuple[str, ...], open_source: OpenSource, write: WriteText | None
) -> Splits:
    data: Corpora = recipe.data
    cache, skip = cache_folder(recipe), data.on_bad_line == "skip"
    parts: tuple[Part, ...] = ("train", "validation", "test")
    sources = {
        split: [
            (source, _part_of(open_source(source, split == "test"), split, data.hold_out))
            for source in _sources(data, split)
        ]
        for split in parts
    }
    _check_tags(recipe, [source for readers in sources.values() for source, _ in readers])
    for readers in sources.values():  # before hours are spent on the first of them
        for _, reader in readers:
            reader.files()

    def build(split: Part, cleaning: Cleaning, held_out: tuple[Corpus, ...] = ()) -> Corpus:
        is_held_out = data.hold_out > 0 and split != "train"
        field = f"data.hold_out ({split})" if is_held_out else f"data.{split}"
        try:
            return build_corpus(
                cache,
                field,
                sources[split],
                cleaning,
                languages,
                skip_bad_lines=skip,
                held_out=held_out,
                has_domains=split == "test" and any(source.domain_column is not None for source, _ in sources[split]),
                write=write if split == "train" else None,
            )
        except NothingLeftError as error:
            if not is_held_out:
                raise
            raise InputError(
                f"data.hold_out is {data.hold_out}, by which so little text leaves nothing for the {split}; give a "
                "larger one (up to 0.25), or a file for data.validation and one for data.test"
            ) from error

    held_out = build("validation", AS_THEY_ARE), build("test", AS_THEY_ARE)
    train: Corpus | TextStream
    if data.streaming:
        readers = [(source, _streaming(reader)) for source, reader in sources["train"]]
        train = TextStream(
            "data.train",
            readers,
            recipe.cleaning,
            languages,
            skip_bad_lines=skip,
            held_out=held_out,
            seed=recipe.run.seed,
        )
    else:
        train = build("train", recipe.cleaning, held_out)
    return Splits(train, *held_out, weights=[source.weight for source, _ in sources["train"]])
