import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.data.batches.masked_language_modeling import collate_masked, mask_tokens

PAD, CLS, SEP, MASK, UNUSED, VOCABULARY = 0, 1, 2, 3, 29, 30
ORDINARY = np.ones(VOCABULARY, dtype=bool)
ORDINARY[[PAD, CLS, SEP, MASK, UNUSED]] = False

sequences_of_text = st.lists(st.lists(st.integers(4, 28), max_size=40), min_size=1, max_size=6)


def padded(texts: list[list[int]]) -> np.ndarray:
    longest = max(map(len, texts))
    return np.array([[CLS, *text, SEP] + [PAD] * (longest - len(text)) for text in texts], dtype=np.uint16)


@given(sequences_of_text, st.integers(0, 99), st.floats(0.01, 1))
def test_every_sequence_has_its_share_of_labels_on_ordinary_tokens(
    texts: list[list[int]], seed: int, probability: float
) -> None:
    input_ids = padded(texts)
    masked, labels = mask_tokens(input_ids, ORDINARY, MASK, np.random.default_rng(seed), probability)
    assert masked.dtype == labels.dtype == np.int64
    chosen = labels != -100
    np.testing.assert_array_equal(labels[chosen], input_ids[chosen])
    np.testing.assert_array_equal(masked[~chosen], input_ids[~chosen])
    assert np.all(ORDINARY[input_ids[chosen]])
    assert np.all(ORDINARY[masked[chosen]] | (masked[chosen] == MASK))
    for text, count in zip(texts, chosen.sum(axis=1), strict=True):
        assert count == min(len(text), max(1, round(probability * len(text))))


def test_of_the_chosen_eight_in_ten_are_masked_one_replaced_one_kept() -> None:
    input_ids = np.full((200, 1000), 7)
    masked, labels = mask_tokens(input_ids, ORDINARY, MASK, np.random.default_rng(0))
    chosen = labels != -100
    assert chosen.mean() == 0.15
    now = masked[chosen]
    assert (now == MASK).mean() == pytest.approx(0.8, abs=0.01)
    frequencies = np.bincount(now, minlength=VOCABULARY) / len(now)
    assert frequencies[7] == pytest.approx(0.1 + 0.1 / 25, abs=0.005)  # kept, or replaced by itself
    others = frequencies[ORDINARY & (np.arange(VOCABULARY) != 7)]
    np.testing.assert_allclose(others, 0.1 / 25, atol=0.002)  # every ordinary token


def test_every_place_is_chosen_equally_often() -> None:
    input_ids = padded([[5] * 20, [6] * 10])
    rng = np.random.default_rng(0)
    chosen = np.mean([mask_tokens(input_ids, ORDINARY, MASK, rng)[1] != -100 for _ in range(4000)], axis=0)
    np.testing.assert_allclose(chosen[0, 1:21], 3 / 20, atol=0.03)
    np.testing.assert_allclose(chosen[1, 1:11], 2 / 10, atol=0.03)


def test_the_input_is_left_alone_and_the_generator_decides_all() -> None:
    input_ids = padded([list(range(4, 28))])
    before = input_ids.copy()
    first, again, second = (mask_tokens(input_ids, ORDINARY, MASK, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(input_ids, before)
    np.testing.assert_array_equal(first, again)
    assert np.any(first[1] != second[1])


@pytest.mark.parametrize("probability", [0.0, 1.1, float("nan")])
def test_what_is_no_probability(probability: float) -> None:
    with pytest.raises(ValueError, match=f"probability is {probability}; it must be above 0 and at most 1"):
        mask_tokens(padded([[5]]), ORDINARY, MASK, np.random.default_rng(0), probability)


def test_a_batch() -> None:
    sequences = [[CLS, 5, 6, 7, SEP], [CLS, 8, SEP]]
    batch = collate_masked(sequences, ORDINARY, MASK, PAD, np.random.default_rng(0), probability=1.0)
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch["labels"].tolist() == [[-100, 5, 6, 7, -100], [-100, 8, -100, -100, -100]]
    assert batch["input_ids"][:, 0].tolist() == [CLS, CLS]
    assert batch["input_ids"][1, 2:].tolist() == [SEP, PAD, PAD]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
