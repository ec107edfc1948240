"""What all objectives that learn from running text have in common: their batches, and the text that is held out."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from ..console.input_error import InputError
from ..data.batches.text_batches import BlockOptions, CollateBlocks, StreamedTextBatches, TextBatches
from ..data.corpus import Corpus, TextStream
from ..data.splits import SplitFacts, Splits, cache_folder
from ..data.token_store import TokenStore
from ..data.tokenizing import document_encoder, tokenized_documents
from ..recipe.data import RunningText
from ..recipe.recipe import Recipe


def text_batches(
    recipe: Recipe[RunningText],
    splits: Splits,
    tokenizer: PreTrainedTokenizerFast,
    collate: CollateBlocks,
    *,
    block_length: int | None = None,
    is_causal: bool = False,
    has_placeholders: bool = False,
) -> TextBatches | StreamedTextBatches:
    """Batches of blocks of the training text, as many as `tokens_per_batch` allows.

    Args:
        recipe: the run's options.
        splits: the text.
        tokenizer: the vocabulary's.
        collate: makes tensors of blocks.
        block_length: tokens of a block; by default `context_length`.
        is_causal: whether tokens are predicted from those before them (see `blocks_of_epoch`).
        has_placeholders: see `document_encoder`.

    Raises:
        InputError: if there is less than one block.
    """
    data, train = recipe.data, splits.train
    options = BlockOptions(
        block_length=block_length or data.context_length,
        blocks_per_batch=max(1, recipe.optimization.tokens_per_batch // data.context_length),
        seed=recipe.run.seed,
        is_causal=is_causal,
        ordinary_token_id=len(tokenizer) - 1,
    )
    if isinstance(train, TextStream):
        encode = document_encoder(tokenizer, has_placeholders=has_placeholders)
        return StreamedTextBatches(train.chunks, encode, options, collate, data.shuffle_buffer)
    store = tokenized_documents(cache_folder(recipe), train, tokenizer, has_placeholders=has_placeholders)
    if len(store.ids) < options.block_length:
        raise InputError(
            f"data.train has {len(store.ids):,} tokens; it needs at least data.context_length ({data.context_length:,})"
        )
    return TextBatches(train, store, options, collate, weights=splits.weights, temperature=data.temperature)


def held_out_tokens(
    recipe: Recipe[RunningText],
    splits: Splits,
    tokenizer: PreTrainedTokenizerFast,
    *,
    has_placeholders: bool = False,
) -> dict[str, TokenStore]:
    """Token ids of the validation and the test split, a row for each document; has_placeholders as `text_batches`."""
    cache = cache_folder(recipe)
    return {
        split: tokenized_documents(cache, corpus, tokenizer, has_placeholders=has_placeholders)
        for split, corpus in (("validation", splits.validation), ("test", splits.test))
    }


def held_out_facts(held_out: dict[str, TokenStore]) -> list[SplitFacts]:
    """Sizes of the splits that are scored."""
    return [SplitFacts(name=split, examples=len(store), tokens=len(store.ids)) for split, store in held_out.items()]


def windows(store: TokenStore, length: int) -> Iterator[NDArray[np.integer[Any]]]:
    """The documents of a split in pieces of up to `length` tokens, without overlap; those of one token are left out."""
    for index in range(len(store)):
        (document,) = store.row(index)
        for start in range(0, len(document), length):
            if len(window := document[start : start + length]) > 1:
                yield window


def row_bytes(corpus: Corpus) -> list[int]:
    """Bytes of each row of a split, in UTF-8."""
    return [size for chunk in corpus.chunks() for size in pc.binary_length(chunk.column("text")).to_pylist()]


def first_lines(corpus: Corpus, count: int) -> list[str]:
    """The first lines of a split that are not blank, with their line ends."""
    lines = (f"{line}\n" for piece in corpus.texts("text") for line in piece.split("\n") if line.strip())
    return list(islice(lines, count))
