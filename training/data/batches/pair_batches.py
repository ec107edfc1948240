"""Training batches of sentence pairs: of a corpus that is tokenised on disk, or of text that is tokenised on the way.

Both kinds have what `BatchStream` walks through: `pools`, the batches of an epoch, and `collate`, the tensors of one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..corpus import Corpus
from ..mixing import mixed_epoch
from ..splits import SplitFacts
from ..text.chunks import tables_of_rows
from ..token_store import TokenStore
from .token_budget import Batch, TokenIds, pad, token_budget_batches

RESEGMENTED_PAIRS = 1 << 14
"""Enough to have batches with little padding; a few seconds of segmenting."""

Sample = Callable[[Sequence[str], int], list[list[int]]]
"""Token ids of texts, segmented at random; the same seed gives the same segmentations."""


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """What batches of sentence pairs are made by."""

    max_length: int
    """Longest sequence in tokens, its end mark included."""

    truncate: bool
    """Whether longer ones are cut off, and keep their end mark, instead of being left out with their pair."""

    tokens_per_batch: int
    """Largest number of rows times tokens a row of either side, padding included."""

    seed: int
    pad_token_id: int

    def fits(self, lengths: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which pairs are trained on, (N,), by the lengths of their sides, (N, 2)."""
        return np.full(len(lengths), self.truncate) | np.all(lengths <= self.max_length, axis=1)

    def cut(self, ids: TokenIds) -> TokenIds:
        """The ids, or as many as fit and the last one, which marks the end."""
        return ids if len(ids) <= self.max_length else [*ids[: self.max_length - 1], ids[-1]]

    def plan(self, lengths: NDArray[np.uint32], rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Batches of pairs with lengths (N, 2), as arrays of numbers below N."""
        return token_budget_batches(np.minimum(lengths, self.max_length), self.tokens_per_batch, rng)

    def tensors(self, sources: Iterable[TokenIds], targets: Iterable[TokenIds]) -> Batch:
        """`input_ids` and `attention_mask` (B, S), and `labels` (B, T) with -100 as padding."""
        inputs = [self.cut(ids) for ids in sources]
        return {
            "input_ids": pad(inputs, self.pad_token_id),
            "attention_mask": pad([[1] * len(ids) for ids in inputs], 0),
            "labels": pad([self.cut(ids) for ids in targets], -100),
        }


class PairBatches:
    """Batches of a corpus on disk, of any size: what is in memory is some 30 bytes a pair.

    Args:
        corpus: the text, one source after another.
        store: its token ids, row by row (source, target).
        options: how batches are made.
        weights, temperature: how sources are mixed (see `mixed_epoch`).
    """

    def __init__(
        self,
        corpus: Corpus,
        store: TokenStore,
        options: BatchOptions,
        *,
        weights: Sequence[float],
        temperature: float = 1.0,
    ):
        self.corpus, self.store, self.options = corpus, store, options
        self.weights, self.temperature = weights, temperature
        fits = options.fits(store.lengths)
        self.rows = np.flatnonzero(fits).astype(np.uint32)
        """Rows of the corpus that are trained on."""
        bounds = np.cumsum([0, *corpus.sizes])
        self.sizes = [int(count) for count in np.diff(np.searchsorted(self.rows, bounds))]
        """How many of them each source has."""

    def pools(self, epoch: int, first: int) -> Iterator[list[NDArray[np.uint32]]]:
        """The batches of an epoch, rows of the corpus each, (B,): all in one pool."""
        if first > 0:
            return
        rows, rng = self._order(epoch)
        yield [rows[batch] for batch in self.options.plan(self.store.lengths[rows], rng)]

    def shuffled_text(self, epoch: int, *, chunk_size: int) -> Iterator[pa.RecordBatch]:
        """The text of an epoch in its order, before batches are made of it."""
        rows, _ = self._order(epoch)
        dataset = self.corpus.dataset.with_format("arrow")
        for first in range(0, len(rows), chunk_size):
            yield from dataset[rows[first : first + chunk_size].tolist()].to_batches()

    def _order(self, epoch: int) -> tuple[NDArray[np.uint32], np.random.Generator]:
        """The rows of an epoch, and the generator that has shuffled them."""
        rng = np.random.default_rng((self.options.seed, epoch))
        return self.rows[mixed_epoch(self.sizes, self.weights, self.temperature, rng)], rng

    def statistics(self) -> tuple[int, float]:
        """How many batches the first epoch has, and which share of their positions, on both sides, is padding."""
        (batches,) = self.pools(0, 0)
        tokens = positions = 0
        for rows in batches:
            lengths = np.minimum(self.store.lengths[rows], self.options.max_length)
            tokens += int(lengths.sum())
            positions += len(lengths) * int(lengths.max(axis=0).sum())
        return len(batches), 1 - tokens / positions

    def longest_batch(self) -> Batch:
        """The batch of the first epoch with the most positions; of several that with the longest sentences."""
        (batches,) = self.pools(0, 0)

        def size(rows: NDArray[np.uint32]) -> tuple[int, int]:
            widths = np.minimum(self.store.lengths[rows].max(axis=0), self.options.max_length)
            return len(rows) * int(widths.sum()), int(widths.max())

        return self.collate(max(batches, key=size))

    def facts(self) -> SplitFacts:
        """How many pairs are trained on, and their tokens."""
        tokens = int(self.store.lengths[self.rows].sum(dtype=np.int64))
        return SplitFacts(name="train", examples=len(self.rows), tokens=tokens)

    def describe(self) -> str:
        """How many batches an epoch has, and how much of them is padding."""
        batches, padding = self.statistics()
        budget = f"{self.options.tokens_per_batch:,} tokens a side"
        return f"an epoch: {batches:,} batches of up to {budget}, {padding:.1%} of them padding"

    def collate(self, rows: NDArray[np.uint32]) -> Batch:
        """The tensors of a batch: `input_ids` and `attention_mask` (B, S), `labels` (B, T)."""
        sources, targets = zip(*map(self.store.row, rows), strict=True)
        return self.options.tensors(sources, targets)


@dataclass(frozen=True, kw_only=True)
class StreamedPairBatches:
    """Batches of text that is tokenised while training. Where it is read and cleaned then as well, any size fits."""

    chunks: Callable[[int], Iterator[pa.RecordBatch]]
    """The clean text of an epoch, in chunks; the same at every call with the same epoch."""

    encoders: tuple[Sample, Sample]
    """For each side, a tokenizer; or one that segments at random, given texts and a seed."""

    options: BatchOptions

    buffer: int
    """Pairs that are shuffled, and sorted by length, at a time."""

    size: SplitFacts | None = None
    """How large an epoch is; of a stream that is not known."""

    def pools(self, epoch: int, first: int) -> Iterator[list[list[tuple[TokenIds, TokenIds]]]]:
        """The batches of an epoch, a pool for each filling of the buffer; skipped ones are read and not tokenised."""
        for number, table in enumerate(tables_of_rows(self.chunks(epoch), self.buffer)):
            if number < first:
                continue
            rng = np.random.default_rng((self.options.seed, epoch, number))
            sides = [
                encode(table.column(side).to_pylist(), int(rng.integers(2**62)))
                for side, encode in enumerate(self.encoders)
            ]
            lengths = np.array([[len(ids) for ids in side] for side in sides], dtype=np.uint32).T
            kept = np.flatnonzero(self.options.fits(lengths))
            pairs = list(zip(*sides, strict=True))
            yield [[pairs[kept[i]] for i in batch] for batch in self.options.plan(lengths[kept], rng)]

    def longest_batch(self) -> Batch:
        """As many pairs as hold a whole budget, with both sides as long as can be: no batch takes more memory."""
        rows = -(-self.options.tokens_per_batch // self.options.max_length)  # rounded up
        sides = [[0] * self.options.max_length] * rows  # which tokens makes no difference
        return self.options.tensors(sides, sides)

    @classmethod
    def resegmenting(cls, pairs: PairBatches, encoders: tuple[Sample, Sample]) -> "StreamedPairBatches":
        """Batches of a corpus on disk, whose text is segmented at random, anew in each epoch.

        They are planned by the lengths that come of it, some thousand pairs at a time.
        """
        return cls(
            chunks=partial(pairs.shuffled_text, chunk_size=RESEGMENTED_PAIRS),
            encoders=encoders,
            options=pairs.options,
            buffer=RESEGMENTED_PAIRS,
            size=pairs.facts(),
        )

    def facts(self) -> SplitFacts:
        """How many pairs are trained on, and their tokens, as far as that is known."""
        return self.size or SplitFacts(name="train", examples=None)

    def describe(self) -> str:
        """How large batches are."""
        return f"batches of up to {self.options.tokens_per_batch:,} tokens a side, made while training"

    def collate(self, batch: list[tuple[TokenIds, TokenIds]]) -> Batch:
        """The tensors of a batch."""
        return self.options.tensors(*zip(*batch, strict=True))
