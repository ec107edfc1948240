"""Training batches of running text, from a corpus on disk or from a stream.

Both kinds have what `BatchStream` walks through: `pools`, the batches of an epoch, and `collate`, the tensors of one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..corpus import Corpus
from ..mixing import mixed_epoch
from ..splits import SplitFacts
from ..text.chunks import tables_of_rows
from ..token_store import IdFile, TokenStore
from ..tokenizing import EncodeDocuments
from .packing import batches_of_blocks, blocks_of_epoch
from .token_budget import Batch


class CollateBlocks(Protocol):
    """Makes tensors of blocks of text: what a model is to learn from them."""

    def __call__(
        self,
        tokens: NDArray[np.integer[Any]] | IdFile,
        blocks: NDArray[np.int64],
        document_starts: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> Batch:
        """Tensors of some blocks.

        Args:
            tokens: the whole text, (num_tokens,).
            blocks: where blocks begin and end, (B, 2).
            document_starts: where documents begin in the text, in ascending order.
            rng: decides all that is random.
        """


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """What batches of running text are made by."""

    block_length: int
    """Tokens a block."""

    blocks_per_batch: int
    seed: int
    is_causal: bool
    """Whether tokens are predicted from those before them (see `blocks_of_epoch`)."""

    ordinary_token_id: int
    """Of any token that stands for text."""

    @property
    def shape(self) -> str:
        """Of a batch, in words."""
        return f"{self.blocks_per_batch} x {self.block_length} tokens"

    def cut(self, num_tokens: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Blocks of a text, (N, 2)."""
        return blocks_of_epoch(num_tokens, self.block_length, rng, is_causal=self.is_causal)


class BlockBatch(NamedTuple):
    """A batch before it is collated."""

    blocks: NDArray[np.int64]
    """Where blocks begin and end, (B, 2)."""

    seed: tuple[int, ...]
    """Of what is random in its tensors."""


class TextBatches:
    """Batches of a corpus on disk, of any size: what is in memory is some bytes a block.

    Args:
        corpus: the text, one source after another.
        store: its token ids, a row for each document.
        options: how batches are made.
        collate: makes their tensors.
        weights, temperature: how sources are mixed, by their blocks (see `mixed_epoch`).
    """

    def __init__(
        self,
        corpus: Corpus,
        store: TokenStore,
        options: BlockOptions,
        collate: CollateBlocks,
        *,
        weights: Sequence[float],
        temperature: float = 1.0,
    ):
        self.store, self.options, self.collate_blocks = store, options, collate
        self.weights, self.temperature = weights, temperature
        self.bounds = store.starts[np.cumsum([0, *corpus.documents])]
        """Where each source begins in the tokens, and where the last ends."""

    def pools(self, epoch: int, first: int) -> Iterator[list[BlockBatch]]:
        """The batches of an epoch, all in one pool."""
        if first > 0:
            return
        options = self.options
        rng = np.random.default_rng((options.seed, epoch))
        sources = [
            begin + options.cut(int(end - begin), rng) for begin, end in zip(self.bounds, self.bounds[1:], strict=False)
        ]
        chosen = mixed_epoch([len(blocks) for blocks in sources], self.weights, self.temperature, rng)
        batches = batches_of_blocks(rng.permutation(np.concatenate(sources)[chosen]), options.blocks_per_batch)
        yield [BlockBatch(blocks, (options.seed, epoch, 0, number)) for number, blocks in enumerate(batches)]

    def longest_batch(self) -> Batch:
        """The batch of the first epoch with the most positions."""
        (batches,) = self.pools(0, 0)

        def size(batch: BlockBatch) -> int:
            return len(batch.blocks) * int((batch.blocks[:, 1] - batch.blocks[:, 0]).max())

        return self.collate(max(batches, key=size))

    def facts(self) -> SplitFacts:
        """How many documents are trained on, and their tokens."""
        return SplitFacts(name="train", examples=len(self.store), tokens=len(self.store.ids))

    def describe(self) -> str:
        """How many batches an epoch has."""
        return f"an epoch: {sum(map(len, self.pools(0, 0))):,} batches of {self.options.shape}"

    def collate(self, batch: BlockBatch) -> Batch:
        """The tensors of a batch."""
        return self.collate_blocks(self.store.ids, batch.blocks, self.store.starts, np.random.default_rng(batch.seed))


@dataclass(frozen=True)
class StreamedTextBatches:
    """Batches of text that is read, cleaned and tokenised while training: nothing is written, any size fits."""

    chunks: Callable[[int], Iterator[pa.RecordBatch]]
    """The clean text of an epoch, in chunks; the same at every call with the same epoch."""

    encode: EncodeDocuments

    options: BlockOptions

    collate_blocks: CollateBlocks

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
            batches = batches_of_blocks(options.cut(len(tokens), rng), options.blocks_per_batch)
            yield [
                self.collate_blocks(tokens, blocks, starts, np.random.default_rng((options.seed, epoch, number, index)))
                for index, blocks in enumerate(batches)
            ]

    def longest_batch(self) -> Batch:
        """The largest batch that there may be: full of full blocks, each of two documents if those are kept apart."""
        options = self.options
        blocks = np.tile([0, options.block_length], (options.blocks_per_batch, 1))
        starts = np.array([0, options.block_length // 2])
        tokens = np.full(options.block_length, options.ordinary_token_id)
        return self.collate_blocks(tokens, blocks, starts, np.random.default_rng(0))

    def facts(self) -> SplitFacts:
        """The size of a stream is not known."""
        return SplitFacts(name="train", examples=None)

    def describe(self) -> str:
        """How large batches are."""
        return f"batches of {self.options.shape}, made while training"

    def collate(self, batch: Batch) -> Batch:
        """The batch: its tensors were made with its pool, whose tokens are in memory."""
        return batch
