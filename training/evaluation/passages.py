"""The loss of a held-out text by passage: what two models are compared by, also where their tokens are not the same.

A passage is some whole lines of the text, of 1,000 bytes or more, and so the same for every tokenizer. A token belongs
to the passage in which it begins.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

BYTES_A_PASSAGE = 1000


@dataclass(frozen=True, kw_only=True)
class PassageLosses:
    """The losses of N passages of a split."""

    nats: NDArray[np.float64]
    """The sum over the tokens of each, (N,)."""

    tokens: NDArray[np.int64]
    """How many those are, (N,)."""

    bytes: NDArray[np.int64] | None
    """UTF-8 bytes of each, (N,); None where only some of its tokens are predicted, which are then the unit."""

    sha256: str
    """Of the passages, and of which of their tokens are predicted if not all are: only equal ones compare."""

    texts: Sequence[str] = ()
    """The passages themselves, N or none."""

    def records(self) -> list[dict[str, Any]]:
        """As the lines of a file have them."""
        columns: dict[str, list[Any]] = {"nats": [round(value, 4) for value in self.nats.tolist()]}
        columns["tokens"] = self.tokens.tolist()
        if self.bytes is not None:
            columns["bytes"] = self.bytes.tolist()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def read_losses(text: str, sha256: str) -> PassageLosses | None:
    """Losses from the text of a file of `PassageLosses.records`; None if it is something else."""
    try:
        records = [json.loads(line) for line in text.splitlines()]
        nats = np.array([record["nats"] for record in records], dtype=np.float64)
        tokens = np.array([record["tokens"] for record in records], dtype=np.int64)
        sizes = np.array([record["bytes"] for record in records], dtype=np.int64) if "bytes" in records[0] else None
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    units = tokens if sizes is None else sizes
    is_sound = np.isfinite(nats).all() and units.sum() > 0
    return PassageLosses(nats=nats, tokens=tokens, bytes=sizes, sha256=sha256) if is_sound else None


def name_passages(losses: PassageLosses, sizes: Sequence[int], names: Sequence[str]) -> list[str]:
    """Of each of N passages, what the part of the text that it begins in is called.

    Args:
        losses: of the passages, whose bytes are known.
        sizes: of the text's parts, in bytes.
        names: of those parts.
    """
    assert losses.bytes is not None
    begins = np.cumsum(losses.bytes) - losses.bytes
    return [names[part] for part in np.searchsorted(np.cumsum(sizes), begins, "right")]


def losses_by_passage(
    token_losses: Sequence[NDArray[np.float64]], chunks: Iterable[pa.RecordBatch], tokenizer: PreTrainedTokenizerFast
) -> PassageLosses:
    """Adds up the losses of running text.

    Args:
        token_losses: of each token of each document; not a number where it is not predicted.
        chunks: the text of those documents.
        tokenizer: by which `document_encoder` made their tokens.
    """
    passages, texts, sha256 = _passages_of_tokens(chunks, tokenizer)
    losses = np.concatenate(token_losses)
    is_predicted = ~np.isnan(losses)
    places = passages[is_predicted]
    return PassageLosses(
        nats=np.bincount(places, weights=losses[is_predicted], minlength=len(texts)).astype(np.float64),
        tokens=np.bincount(places, minlength=len(texts)),
        bytes=np.array([len(text.encode("utf-8")) for text in texts], dtype=np.int64),
        sha256=sha256,
        texts=texts,
    )


def _passages_of_tokens(
    chunks: Iterable[pa.RecordBatch], tokenizer: PreTrainedTokenizerFast
) -> tuple[NDArray[np.int64], list[str], str]:
    """The passage of each token of running text, the text of each passage, and the hash of all."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = tokenizer.split_special_tokens
    marks = [mark is not None for mark in (tokenizer.eos_token_id, tokenizer.bos_token_id)]
    digest, size, places = hashlib.sha256(), 0, []
    passages: list[list[str]] = [[]]
    is_inside = False
    for chunk in chunks:
        for text, begins in zip(chunk.column("text").to_pylist(), chunk.column("begins").to_pylist(), strict=True):
            if begins or not is_inside:
                # The end of the document before, and the beginning of this, which is not predicted.
                places.append(np.full((is_inside and marks[0]) + marks[1], len(passages) - 1))
                is_inside = True
            first_characters, owners, position = [], [], 0
            for line in text.splitlines(keepends=True):
                if size >= BYTES_A_PASSAGE:
                    passages.append([])
                    size = 0
                    digest.update(b"\0")
                content = line.encode("utf-8")
                digest.update(content)
                passages[-1].append(line)
                size += len(content)
                first_characters.append(position)
                owners.append(len(passages) - 1)
                position += len(line)
            starts = [start for start, _ in backend.encode(text, add_special_tokens=False).offsets]
            if starts:
                places.append(np.array(owners)[np.searchsorted(first_characters, starts, "right") - 1])
    places.append(np.full(int(is_inside and marks[0]), len(passages) - 1))
    return np.concatenate(places), ["".join(lines) for lines in passages], digest.hexdigest()
