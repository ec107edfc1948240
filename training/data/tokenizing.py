"""From clean text to token stores, as fast as the tokenizers library encodes batches, chunk by chunk."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from ..console.progress import ProgressBar
from .cache import cached_folder
from .corpus import Corpus
from .token_store import TokenStore, TokenWriter

Encode = Callable[[list[str]], list[list[int]]]
"""Token ids of each of some texts."""

EncodeDocuments = Callable[[Iterable[pa.RecordBatch]], Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]]
"""Ids of chunks of running text, and where in them documents begin (see `encoded_documents`)."""


def batch_encoder(
    tokenizer: PreTrainedTokenizerFast, *, add_special_tokens: bool = True, split_special_tokens: bool | None = None
) -> Encode:
    """What `tokenizer(texts).input_ids` is, without the offsets and masks that nobody asks for here.

    Args:
        split_special_tokens: whether a text that spells a special token is read as its characters; by default as the
            tokenizer says.
    """
    split = tokenizer.split_special_tokens if split_special_tokens is None else split_special_tokens
    backend = tokenizer.backend_tokenizer

    def encode(texts: list[str]) -> list[list[int]]:
        # A call of the tokenizer elsewhere may have changed these; they belong to the library's object.
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = split
        return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)]

    return encode


def tokenized_pairs(
    cache: Path, corpus: Corpus, tokenizers: tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast]
) -> TokenStore:
    """The token ids of a corpus of sentence pairs, row by row (source, target); cached by text and tokenizers."""

    def write(folder: Path) -> None:
        size = max(map(len, tokenizers))
        source, target = (batch_encoder(tokenizer) for tokenizer in tokenizers)
        with TokenWriter(folder, columns=2, vocab_size=size) as writer:
            write_pairs(_with_progress(corpus), (source, target), writer)

    ingredients = {"text": corpus.folder.name, "tokenizers": [_identity(tokenizer) for tokenizer in tokenizers]}
    return TokenStore(cached_folder(cache, "tokens", ingredients, write))


def tokenized_documents(
    cache: Path, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, *, has_placeholders: bool = False
) -> TokenStore:
    """The token ids of running text, a row for each document, as `document_encoder` makes them; cached as pairs are."""

    def write(folder: Path) -> None:
        encode = document_encoder(tokenizer, has_placeholders=has_placeholders)
        with TokenWriter(folder, columns=1, vocab_size=len(tokenizer)) as writer:
            write_documents(encode(_with_progress(corpus)), writer)

    identity = _identity(tokenizer)
    ingredients = {"text": corpus.folder.name, "tokenizer": identity, "has_placeholders": has_placeholders}
    return TokenStore(cached_folder(cache, "tokens", ingredients, write))


def _with_progress(corpus: Corpus) -> Iterator[pa.RecordBatch]:
    with ProgressBar(total=len(corpus), desc="tokenize", unit=" rows") as bar:
        for chunk in corpus.chunks():
            yield chunk
            bar.update(len(chunk))


def _identity(tokenizer: PreTrainedTokenizerFast) -> str:
    """A hash of all that decides what a text's ids are."""
    settings = [tokenizer.backend_tokenizer.to_str(), tokenizer.split_special_tokens, version("tokenizers")]
    return xxhash.xxh3_128_hexdigest(json.dumps(settings).encode())


def write_pairs(chunks: Iterable[pa.RecordBatch], encoders: tuple[Encode, Encode], writer: TokenWriter) -> None:
    """Encodes chunks of sentence pairs into rows (source, target)."""
    for chunk in chunks:
        sides = [encode(chunk.column(side).to_pylist()) for side, encode in enumerate(encoders)]
        sequences = list(chain.from_iterable(zip(*sides, strict=True)))
        lengths = np.fromiter(map(len, sequences), np.uint32, len(sequences))
        writer.write_ids(np.fromiter(chain.from_iterable(sequences), writer.dtype, int(lengths.sum())))
        writer.write_lengths(lengths)


def document_encoder(tokenizer: PreTrainedTokenizerFast, *, has_placeholders: bool = False) -> EncodeDocuments:
    """Encodes chunks of running text as `encoded_documents` does, with the tokenizer's marks.

    Args:
        has_placeholders: whether the text is for a model that fills something in. Its tokenizer finds `<mask>` in a
            text, but a corpus that spells it does not mean it; and as `</s>` ends what such a model writes, no document
            in the midst of a text ends with it.
    """
    split = True if has_placeholders else None
    return partial(
        encoded_documents,
        encode=batch_encoder(tokenizer, add_special_tokens=False, split_special_tokens=split),
        begin=tokenizer.bos_token_id,
        end=None if has_placeholders else tokenizer.eos_token_id,
    )


def encoded_documents(
    chunks: Iterable[pa.RecordBatch], encode: Encode, *, begin: int | None, end: int | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Encodes chunks of running text, each document behind a mark of its beginning and before one of its end.

    Args:
        encode: adds no marks itself.
        begin, end: ids of the marks; None for none.

    Yields:
        For each chunk its ids, (n,), and where in them documents begin; at last the mark that ends the last document.
    """
    is_inside = False
    for chunk in chunks:
        pieces: list[list[int]] = []  # of this chunk, with the marks between them
        starts: list[int] = []
        length = 0
        for ids, begins in zip(
            encode(chunk.column("text").to_pylist()), chunk.column("begins").to_pylist(), strict=True
        ):
            if begins or not is_inside:
                ending = [end] if is_inside and end is not None else []
                beginning = [begin] if begin is not None else []
                starts.append(length + len(ending))
                pieces.append(ending + beginning)
                length += len(ending) + len(beginning)
                is_inside = True
            pieces.append(ids)
            length += len(ids)
        yield np.fromiter(chain.from_iterable(pieces), np.int64, length), np.array(starts, dtype=np.int64)
    if is_inside and end is not None:
        yield np.array([end]), np.empty(0, dtype=np.int64)


def write_documents(documents: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]], writer: TokenWriter) -> None:
    """Writes what `encoded_documents` yields; each document is a row."""
    open_since = None  # where the document at hand begins
    for ids, starts in documents:
        starts = starts + writer.num_ids
        bounds = starts if open_since is None else np.concatenate(([open_since], starts))
        writer.write_lengths(np.diff(bounds))
        writer.write_ids(ids)
        open_since = bounds[-1] if len(bounds) else None
    if open_since is not None:
        writer.write_lengths(np.array([writer.num_ids - open_since]))
