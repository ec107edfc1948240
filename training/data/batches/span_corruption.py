"""T5's objective: to write down the spans of text that were dropped from the input."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..token_store import IdFile
from .token_budget import Batch, pad


def corrupt_spans(
    tokens: NDArray[np.integer[Any]],
    sentinel_ids: NDArray[np.integer[Any]],
    eos_token_id: int,
    rng: np.random.Generator,
    noise_density: float = 0.15,
    mean_span_length: float = 3.0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Drops random spans of a sequence and makes them the target (Raffel et al. 2020, sections 3.1.4 and 3.3.4).

    In the source a sentinel of its own replaces each span; the target has the sentinels, each followed by the span that
    it stands for, and one more that says that no span follows. Both end with `eos_token_id`. How many tokens and spans
    are dropped is fixed by the sequence's length; where, and how long each span is, is drawn, every division being
    equally likely. Kept and dropped spans take turns, beginning with a kept one, as in the paper's own code.

    Args:
        tokens: (T,), at least two, without an end token.
        sentinel_ids: ids of the sentinels in order; one more is needed than there are spans.
        eos_token_id: the end token.
        rng: decides which spans.
        noise_density: share of the tokens to drop.
        mean_span_length: of the dropped spans.

    Returns:
        Source and target, one-dimensional.

    Raises:
        ValueError: if there are fewer than two tokens, too few sentinels, or options out of range.
    """
    num_noise, num_spans = _noise(len(tokens), noise_density, mean_span_length)
    if num_spans + 1 > len(sentinel_ids):
        raise ValueError(
            f"{len(tokens)} tokens have {num_spans} spans to drop, which need {num_spans + 1} sentinels; there are "
            f"{len(sentinel_ids)}: give shorter sequences or more sentinels"
        )
    kept = _divide(len(tokens) - num_noise, num_spans, rng)
    dropped = _divide(num_noise, num_spans, rng)
    # Where the spans begin and end: kept, dropped, kept, and so on.
    bounds = np.cumsum(np.stack((kept, dropped), axis=1).ravel())[:-1]
    spans = np.split(tokens, bounds)
    source, target = [], []
    for index, sentinel in enumerate(sentinel_ids[:num_spans]):
        source += [spans[2 * index], [sentinel]]
        target += [[sentinel], spans[2 * index + 1]]
    end = [eos_token_id]
    return (
        np.concatenate([*source, end]).astype(np.int64),
        np.concatenate([*target, [sentinel_ids[num_spans]], end]).astype(np.int64),
    )


def lengths_for(source_length: int, noise_density: float = 0.15, mean_span_length: float = 3.0) -> tuple[int, int]:
    """How many tokens to corrupt so that the source just fills a length.

    Args:
        source_length: of the corrupted source, its end token included.

    Returns:
        The number of tokens to give to `corrupt_spans`, the largest whose source is not longer than that, and the
        length of the target that it makes.

    Raises:
        ValueError: if not even two tokens fit, or if the options are out of range.
    """
    num_tokens = 2
    while _corrupted_lengths(num_tokens + 1, noise_density, mean_span_length)[0] <= source_length:
        num_tokens += 1
    shortest, target_length = _corrupted_lengths(num_tokens, noise_density, mean_span_length)
    if shortest > source_length:
        raise ValueError(f"source_length is {source_length}; the shortest source has {shortest} tokens")
    return num_tokens, target_length


def collate_corrupted(
    sequences: Sequence[NDArray[np.integer[Any]]],
    sentinel_ids: NDArray[np.integer[Any]],
    eos_token_id: int,
    pad_token_id: int,
    rng: np.random.Generator,
    noise_density: float = 0.15,
    mean_span_length: float = 3.0,
) -> Batch:
    """Corrupts B sequences and pads them; see `corrupt_spans`.

    Returns:
        `input_ids` and `attention_mask`, (B, S), and `labels`, (B, T).
    """
    sources, targets = zip(
        *(
            corrupt_spans(tokens, sentinel_ids, eos_token_id, rng, noise_density, mean_span_length)
            for tokens in sequences
        ),
        strict=True,
    )
    return {
        "input_ids": pad(sources, pad_token_id),
        "attention_mask": pad([[1] * len(source) for source in sources], 0),
        "labels": pad(targets, -100),
    }


def count_sentinels(num_tokens: int, noise_density: float = 0.15, mean_span_length: float = 3.0) -> int:
    """How many sentinels `corrupt_spans` needs for that many tokens."""
    return _noise(num_tokens, noise_density, mean_span_length)[1] + 1


@dataclass(frozen=True, kw_only=True)
class CorruptedBlocks:
    """Corrupts blocks of running text, at other places each time that they come."""

    sentinel_ids: NDArray[np.int64]
    eos_token_id: int
    pad_token_id: int
    noise_density: float
    mean_span_length: float

    def __call__(
        self,
        tokens: NDArray[np.integer[Any]] | IdFile,
        blocks: NDArray[np.int64],
        document_starts: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> Batch:
        return collate_corrupted(
            [tokens[start:end] for start, end in blocks],
            self.sentinel_ids,
            self.eos_token_id,
            self.pad_token_id,
            rng,
            self.noise_density,
            self.mean_span_length,
        )


def _corrupted_lengths(num_tokens: int, noise_density: float, mean_span_length: float) -> tuple[int, int]:
    """Lengths of source and target."""
    num_noise, num_spans = _noise(num_tokens, noise_density, mean_span_length)
    return num_tokens - num_noise + num_spans + 1, num_noise + num_spans + 2


def _noise(num_tokens: int, noise_density: float, mean_span_length: float) -> tuple[int, int]:
    """How many tokens to drop, and in how many spans; at least one token is kept before each."""
    if num_tokens < 2:
        raise ValueError(f"a sequence of {num_tokens} tokens cannot be corrupted; it needs at least 2")
    if not 0 < noise_density < 1:
        raise ValueError(f"noise_density is {noise_density}; it must be between 0 and 1")
    if not mean_span_length >= 1:
        raise ValueError(f"mean_span_length is {mean_span_length}; it must be at least 1")
    num_noise = min(max(1, round(num_tokens * noise_density)), num_tokens - 1)
    num_spans = min(max(1, round(num_noise / mean_span_length)), num_tokens - num_noise)
    return num_noise, num_spans


def _divide(total: int, parts: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Lengths of at least 1 that sum to a total, (parts,); each such division is equally likely."""
    cuts = 1 + np.sort(rng.choice(total - 1, parts - 1, replace=False))
    return np.diff(cuts, prepend=0, append=total)
