from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from paperformer.training.data.batches.span_corruption import collate_corrupted, corrupt_spans, lengths_for

EOS, PAD = 1, 0
SENTINELS = np.arange(999, 899, -1)  # T5 counts down from the end of its vocabulary, too
densities = st.floats(0.05, 0.9)
span_lengths = st.floats(1, 10)


def corrupted(
    num_tokens: int, seed: int = 0, density: float = 0.15, span_length: float = 3.0
) -> tuple[list[int], list[int]]:
    tokens = np.arange(2, num_tokens + 2, dtype=np.uint16)
    rng = np.random.default_rng(seed)
    source, target = corrupt_spans(tokens, SENTINELS, EOS, rng, density, span_length)
    assert source.dtype == target.dtype == np.int64
    return source.tolist(), target.tolist()


def spans_of(target: list[int]) -> dict[int, list[int]]:
    """Sentinel -> what follows it."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in SENTINELS:
            spans[token] = []
        else:
            spans[list(spans)[-1]].append(token)
    return spans


@given(st.integers(2, 120), st.integers(0, 99), densities, span_lengths)
def test_source_and_target_together_are_the_original(
    num_tokens: int, seed: int, density: float, span_length: float
) -> None:
    source, target = corrupted(num_tokens, seed, density, span_length)
    assert source.pop() == target.pop() == EOS
    spans = spans_of(target)
    assert list(spans) == SENTINELS[: len(spans)].tolist()  # in order
    closing = list(spans)[-1]
    assert spans.pop(closing) == []
    assert closing not in source
    assert all(spans.values())
    original = []
    for token in source:
        original += spans.pop(token, [token])
    assert original == list(range(2, num_tokens + 2))
    assert not spans  # each had its place in the source


@example(2, 0, 0.9, 1.0)  # one token must be kept
@given(st.integers(2, 120), st.integers(0, 99), densities, span_lengths)
def test_density_and_span_length_are_those_asked_for(
    num_tokens: int, seed: int, density: float, span_length: float
) -> None:
    _, target = corrupted(num_tokens, seed, density, span_length)
    num_spans = len(spans_of(target[:-1])) - 1
    num_dropped = len(target) - num_spans - 2
    assert abs(num_dropped - density * num_tokens) <= 0.5 or num_dropped in (1, num_tokens - 1)
    most = num_tokens - num_dropped  # a kept token before each
    assert abs(num_spans - num_dropped / span_length) <= 0.5 or num_spans in (1, most)


def test_the_papers_defaults() -> None:
    source, target = corrupted(512)
    assert len(target) - 2 - 26 == 77  # 15 % of 512
    assert len(source) == 512 - 77 + 26 + 1


def test_every_division_is_equally_likely() -> None:
    seen = Counter(tuple(corrupted(6, seed, density=0.5, span_length=1.5)[0]) for seed in range(4000))
    # 3 kept and 3 dropped tokens in 2 spans each: 2 x 2 divisions
    assert len(seen) == 4
    assert all(abs(count / 4000 - 0.25) < 0.03 for count in seen.values())


def test_the_generator_decides_all() -> None:
    assert corrupted(100, seed=1) == corrupted(100, seed=1)
    assert corrupted(100, seed=1) != corrupted(100, seed=2)


@given(st.integers(4, 700), st.floats(0.05, 0.5), span_lengths)
def test_the_source_just_fills_its_length(source_length: int, density: float, span_length: float) -> None:
    num_tokens, target_length = lengths_for(source_length, density, span_length)
    tokens = np.arange(num_tokens)
    sentinels = np.arange(10_000, 11_000)
    source, target = corrupt_spans(tokens, sentinels, EOS, np.random.default_rng(0), density, span_length)
    assert source_length - 1 <= len(source) <= source_length
    assert len(target) == target_length
    longer, _ = corrupt_spans(np.arange(num_tokens + 1), sentinels, EOS, np.random.default_rng(0), density, span_length)
    assert len(longer) > source_length


def test_lengths_of_the_papers_setting() -> None:
    # The paper's own code gives 568 and 114 for a source of 512, without the closing sentinel in the target.
    assert lengths_for(512) == (568, 115)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_tokens": 1}, "a sequence of 1 tokens cannot be corrupted; it needs at least 2"),
        ({"num_tokens": 9, "density": 1.0}, "noise_density is 1.0; it must be between 0 and 1"),
        ({"num_tokens": 9, "density": 0.0}, "noise_density is 0.0"),
        ({"num_tokens": 9, "span_length": 0.5}, "mean_span_length is 0.5; it must be at least 1"),
        ({"num_tokens": 2001}, "2001 tokens have 100 spans to drop, which need 101 sentinels; there are 100"),
    ],
)
def test_what_cannot_be_corrupted(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corrupted(**arguments)


def test_too_short_a_source() -> None:
    assert lengths_for(3) == (2, 4)
    with pytest.raises(ValueError, match="source_length is 2; the shortest source has 3 tokens"):
        lengths_for(2)


def test_a_batch() -> None:
    sequences = [np.arange(2, 12), np.arange(2, 6)]
    batch = collate_corrupted(sequences, SENTINELS, EOS, PAD, np.random.default_rng(0))
    rng = np.random.default_rng(0)
    for row, tokens in enumerate(sequences):
        source, target = corrupt_spans(tokens, SENTINELS, EOS, rng)
        mask = batch["attention_mask"][row].bool()
        assert batch["input_ids"][row][mask].tolist() == source.tolist()
        assert set(batch["input_ids"][row][~mask].tolist()) <= {PAD}
        labels = batch["labels"][row]
        assert labels[labels != -100].tolist() == target.tolist()
    assert batch["labels"].shape == (2, 5)
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
