"""From clean text to token stores, as fast as the tokenizers library encodes batches, chunk by chunk."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from ..console.progress import ProgressBar
from .cache import cached_folder
from .corpus import Corpus
from .token_store import TokenStore, TokenWriter

Pieces = Iterable[tuple[NDArray[Any], NDArray[Any]]]
"""Ids of chunks, (n,) each, and beside them what `encoded_pairs` or `encoded_documents` says of their sequences."""

Encode = Callable[[list[str]], list[list[int]]]
"""Token ids of each of some texts."""

EncodeDocuments = Callable[..., Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]]
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


@dataclass(frozen=True)
class PairWork:
    """Encoding a corpus of sentence pairs; can be sent to another machine that sees the same files."""

    corpus: Corpus
    tokenizers: tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast]
    """Of the sources and of the targets."""

    columns = 2

    @property
    def vocab_size(self) -> int:
        """Every id is below it."""
        return max(map(len, self.tokenizers))

    def ingredients(self) -> dict[str, Any]:
        """What the ids depend on."""
        return {
            "text": self.corpus.folder.name,
            "tokenizers": [_identity(tokenizer) for tokenizer in self.tokenizers],
        }

    def encode(self, chunks: Iterable[pa.RecordBatch], *, is_first: bool = True, is_last: bool = True) -> Pieces:
        """Encodes chunks, by whose place in the corpus nothing is changed."""
        source, target = (batch_encoder(tokenizer) for tokenizer in self.tokenizers)
        return encoded_pairs(chunks, (source, target))

    def write(self, pieces: Pieces, writer: TokenWriter) -> None:
        """Writes what was encoded, in order."""
        write_pairs(pieces, writer)


@dataclass(frozen=True)
class DocumentWork:
    """Encoding a corpus of running text, as `document_encoder` does; can be sent as `PairWork` can."""

    corpus: Corpus
    tokenizer: PreTrainedTokenizerFast
    has_placeholders: bool = False

    columns = 1

    @property
    def vocab_size(self) -> int:
        """Every id is below it."""
        return len(self.tokenizer)

    def ingredients(self) -> dict[str, Any]:
        """What the ids depend on."""
        identity = _identity(self.tokenizer)
        return {"text": self.corpus.folder.name, "tokenizer": identity, "has_placeholders": self.has_placeholders}

    def encode(self, chunks: Iterable[pa.RecordBatch], *, is_first: bool = True, is_last: bool = True) -> Pieces:
        """Encodes chunks, which are the corpus's first or last ones or neither."""
        encode = document_encoder(self.tokenizer, has_placeholders=self.has_placeholders)
        return encode(chunks, is_inside=not is_first, is_last=is_last)

    def write(self, pieces: Pieces, writer: TokenWriter) -> None:
        """Writes what was encoded, in order; each document is a row."""
        write_documents(pieces, writer)


TokenWork = PairWork | DocumentWork

EncodeCorpus = Callable[[Path, TokenWork], Pieces]
"""Encodes a whole corpus; told of the folder that it is written to."""


def tokenized_pairs(
    cache: Path,
    corpus: Corpus,
    tokenizers: tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast],
    encode: EncodeCorpus | None = None,
) -> TokenStore:
    """The token ids of a corpus of sentence pairs, row by row (source, target); cached by text and tokenizers.

    Args:
        encode: makes them; by default this process.
    """
    return _tokenized(cache, PairWork(corpus, tokenizers), encode)


def tokenized_documents(
    cache: Path,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerFast,
    *,
    has_placeholders: bool = False,
    encode: EncodeCorpus | None = None,
) -> TokenStore:
    """The token ids of running text, a row for each document, as `document_encoder` makes them; cached as pairs are."""
    return _tokenized(cache, DocumentWork(corpus, tokenizer, has_placeholders), encode)


def _tokenized(cache: Path, work: TokenWork, encode: EncodeCorpus | None) -> TokenStore:
    def write(folder: Path) -> None:
        with TokenWriter(folder, work.columns, work.vocab_size) as writer:
            work.write(encode(folder, work) if encode else work.encode(_with_progress(work.corpus)), writer)

    return TokenStore(cached_folder(cache, "tokens", work.ingredients(), write))


def _with_progress(corpus: Corpus) -> Iterator[pa.RecordBatch]:
    with ProgressBar(total=len(corpus), desc="tokenize", unit=" rows") as bar:
        for chunk in corpus.chunks():
            yield chunk
            bar.update(len(chunk))


def _identity(tokenizer: PreTrainedTokenizerFast) -> str:
    """A hash of all that decides what a text's ids are."""
    settings = [tokenizer.backend_tokenizer.to_str(), tokenizer.split_special_tokens, version("tokenizers")]
    return xxhash.xxh3_128_hexdigest(json.dumps(settings).encode())


def encoded_pairs(chunks: Iterable[pa.RecordBatch], encoders: tuple[Encode, Encode]) -> Pieces:
    """For each chunk of sentence pairs the ids, row by row (source, target), and the length of each sequence."""
    for chunk in chunks:
        sides = [encode(chunk.column(side).to_pylist()) for side, encode in enumerate(encoders)]
        sequences = list(chain.from_iterable(zip(*sides, strict=True)))
        lengths = np.fromiter(map(len, sequences), np.uint32, len(sequences))
        yield np.fromiter(chain.from_iterable(sequences), np.uint32, int(lengths.sum())), lengths


def write_pairs(pairs: Pieces, writer: TokenWriter) -> None:
    """Writes what `encoded_pairs` yields."""
    for ids, lengths in pairs:
        writer.write_ids(ids)
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
    chunks: Iterable[pa.RecordBatch],
    encode: Encode,
    *,
    begin: int | None,
    end: int | None,
    is_inside: bool = False,
    is_last: bool = True,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Encodes chunks of running text, each document behind a mark of its beginning and before one of its end.

    Args:
        encode: adds no marks itself.
        begin, end: ids of the marks; None for none.
        is_inside: whether there were chunks before these, so that the first document is not the text's first.
        is_last: whether none come after them.

    Yields:
        For each chunk its ids, (n,), and where in them documents begin; at last the mark that ends the last document.
    """
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
    if is_inside and is_last and end is not None:
        yield np.array([end]), np.empty(0, dtype=np.int64)


def write_documents(documents: Pieces, writer: TokenWriter) -> None:
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
