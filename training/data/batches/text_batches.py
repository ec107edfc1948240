"""Training batches of running text, from a corpus on disk or from a stream.

Both kinds have what `BatchStream` walks through: `pools`, the batches of an epoch, and `collate`, the tensors of one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..corpus import Corpus
from ..mixing import mixed_epoch
from ..splits import SplitFacts
from ..text.chunks import tables_of_rows
from ..token_store import TokenStore
from .packing import batches_of_blocks, blocks_of_epoch, collate_blocks
from .token_budget import Batch

EncodeDocuments = Callable[[Iterator[pa.RecordBatch]], Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]]
"""Ids of chunks of running text, and where in them documents begin (see `encoded_documents`)."""


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """What batches of running text are made by."""

    context_length: int
    """Tokens a block."""

    blocks_per_batch: int
    seed: int
    pad_token_id: int
    separate_documents: bool
    """Whether no token is to see another document."""

    @property
    def shape(self) -> str:
        """Of a batch, in words."""
        return f"{self.blocks_per_batch} x {self.context_length} tokens"


class TextBatches:
    """Batches of a corpus on disk, of any size: what is in memory is some bytes a block.

    Args:
        corpus: the text, one source after another.
        store: its token ids, a row for each document.
        options: how batches are made.
        weights, temperature: how sources are mixed, by their blocks (see `mixed_epoch`).
    """

    def __init__(
        self,
        corpus: Corpus,
        store: TokenStore,
        options: BlockOptions,
        *,
        weights: Sequence[float],
        temperature: float = 1.0,
    ):
        self.store, self.options = store, options
        self.weights, self.temperature = weights, temperature
        self.bounds = store.starts[np.cumsum([0, *corpus.documents])]
        """Where each source begins in the tokens, and where the last ends."""

    def pools(self, epoch: int, first: int) -> Iterator[list[NDArray[np.int64]]]:
        """The batches of an epoch, all in one pool: where blocks begin and end, (B, 2)."""
        if first > 0:
            return
        options = self.options
        rng = np.random.default_rng((options.seed, epoch))
        sources = [
            begin + blocks_of_epoch(int(end - begin), options.context_length, rng)
            for begin, end in zip(self.bounds, self.bounds[1:], strict=False)
        ]
        chosen = mixed_epoch([len(blocks) for blocks in sources], self.weights, self.temperature, rng)
        yield batches_of_blocks(rng.permutation(np.concatenate(sources)[chosen]), options.blocks_per_batch)

    def longest_batch(self) -> Batch:
        """The batch of the first epoch with the most positions."""
        (batches,) = self.pools(0, 0)

        def size(batch: NDArray[np.int64]) -> int:
            return len(batch) * int((batch[:, 1] - batch[:, 0]).max())

        return self.collate(max(batches, key=size))

    def facts(self) -> SplitFacts:
        """How many documents are trained on, and their tokens."""
        return SplitFacts(name="train", examples=len(self.store), tokens=len(self.store.ids))

    def describe(self) -> str:
        """How many batches an epoch has."""
        return f"an epoch: {sum(map(len, self.pools(0, 0))):,} batches of {self.options.shape}"

    def collate(self, batch: NDArray[np.int64]) -> Batch:
        """The tensors of a batch: `input_ids` and `labels`, (B, T), and with separate documents `position_ids`."""
        starts = self.store.starts if self.options.separate_documents else None
        return collate_blocks(self.store.ids, batch, self.options.pad_token_id, starts)


@dataclass(frozen=True)
class StreamedTextBatches:
    """Batches of text that is read, cleaned and tokenised while training: nothing is written, any size fits."""

    chunks: Callable[[int], Iterator[pa.RecordBatch]]
    """The clean text of an epoch, in chunks; the same at every call with the same epoch."""

    encode: EncodeDocuments

    options: BlockOptions

    buffer: int
    """Rows of text whose blocks are shuffled at a time."""

    def pools(self, epoch: int, first: int) -> Iterator[list[Batch]]:
        """The batches of an epoch, a pool for each filling of the buffer; skipped ones are read and not tokenised."""
        options = self.options
        for number, table in enumerate(tables_of_rows(self.chunks(epoch), self.buffer)):
            if number < first:
                continue
            rng = np.random.default_rng((options.seed, epoch, number))
            pieces = list(self.encode(iter(table.to_batches())))
            lengths = [len(ids) for ids, _ in pieces]
            tokens = np.concatenate([ids for ids, _ in pieces])
            offsets = np.cumsum([0, *lengths[:-1]])
            starts = np.concatenate([offset + starts for offset, (_, starts) in zip(offsets, pieces, strict=True)])
            blocks = blocks_of_epoch(len(tokens), options.context_length, rng)
            yield [
                collate_blocks(tokens, batch, options.pad_token_id, starts if options.separate_documents else None)
                for batch in batches_of_blocks(blocks, options.blocks_per_batch)
            ]

    def longest_batch(self) -> Batch:
        """The largest batch that there may be: full of full blocks, each of two documents if those are kept apart."""
        options = self.options
        blocks = np.tile([0, options.context_length], (options.blocks_per_batch, 1))
        starts = np.array([0, options.context_length // 2]) if options.separate_documents else None
        tokens = np.zeros(options.context_length, dtype=np.int64)  # which they are makes no difference
        return collate_blocks(tokens, blocks, options.pad_token_id, starts)

    def facts(self) -> SplitFacts:
        """The size of a stream is not known."""
        return SplitFacts(name="train", examples=None)

    def describe(self) -> str:
        """How large batches are."""
        return f"batches of {self.options.shape}, made while training"

    def collate(self, batch: Batch) -> Batch:
        """The batch: its tensors were made with its pool, whose tokens are in memory."""
        return batch
