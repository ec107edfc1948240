import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.modeling.modeling_lm import PaperformerForCausalLM
from paperformer.training.data.batches.packing import (
    batches_of_blocks,
    blocks_of_epoch,
    collate_blocks,
    evaluation_windows,
)

from ....examples import examples

PAD = 0
lengths_of_documents = st.lists(st.integers(1, 12), min_size=1, max_size=12)


def joined(lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """A text in which every token is another, none of them padding, and where its documents begin."""
    tokens = np.arange(1, sum(lengths) + 1, dtype=np.uint16)
    return tokens, np.cumsum([0, *lengths[:-1]])


@given(st.integers(0, 200), st.integers(2, 40), st.integers(0, 5))
def test_blocks_predict_every_token_but_the_first_once(num_tokens: int, context_length: int, seed: int) -> None:
    blocks = blocks_of_epoch(num_tokens, context_length, np.random.default_rng(seed))
    predicted = [position for start, end in blocks for position in range(start + 1, end)]
    assert sorted(predicted) == list(range(1, num_tokens))
    lengths = blocks[:, 1] - blocks[:, 0]
    assert np.all((lengths >= 2) & (lengths <= context_length))
    assert sum(lengths < context_length) <= 2  # the first and the last


def test_blocks_are_cut_elsewhere_each_epoch_and_shuffled() -> None:
    first, again, second = (blocks_of_epoch(1000, 11, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert set(first[:, 0] % 10) != set(second[:, 0] % 10)
    assert np.any(np.diff(first[:, 0]) < 0)


def test_the_first_cut_may_be_anywhere_in_a_context() -> None:
    first_ends = {
        int(blocks[blocks[:, 0] == 0, 1][0])
        for blocks in (blocks_of_epoch(100, 5, np.random.default_rng(seed)) for seed in range(60))
    }
    assert first_ends == {2, 3, 4, 5}


def test_a_context_of_one_token_predicts_nothing() -> None:
    with pytest.raises(ValueError, match="block_length is 1; a prediction needs at least 2 tokens"):
        blocks_of_epoch(10, 1, np.random.default_rng(0))


def test_batches_of_blocks_lose_none() -> None:
    blocks = blocks_of_epoch(100, 5, np.random.default_rng(0))  # 25 or 26
    batches = batches_of_blocks(blocks, 4)
    assert [len(batch) for batch in batches[:-1]] == [4] * 6
    np.testing.assert_array_equal(np.concatenate(batches), blocks)


def test_a_batch_of_joined_documents() -> None:
    tokens, _ = joined([9])
    batch = collate_blocks(tokens, np.array([[0, 4], [3, 5]]), PAD)
    assert {name: tensor.tolist() for name, tensor in batch.items()} == {
        "input_ids": [[1, 2, 3, 4], [4, 5, PAD, PAD]],
        "labels": [[1, 2, 3, 4], [4, 5, -100, -100]],
    }


def test_a_batch_of_separate_documents() -> None:
    tokens, starts = joined([2, 1, 4])
    batch = collate_blocks(tokens, np.array([[0, 5], [4, 7]]), PAD, starts)
    assert {name: tensor.tolist() for name, tensor in batch.items()} == {
        "input_ids": [[1, 2, 3, 4, 5], [5, 6, 7, PAD, PAD]],
        "labels": [[-100, 2, -100, -100, 5], [5, 6, 7, -100, -100]],
        "position_ids": [[0, 1, 0, 0, 1], [0, 1, 2, 3, 4]],
    }


@given(lengths_of_documents, st.integers(2, 20), st.integers(1, 4), st.integers(0, 5))
def test_separate_documents_predict_every_token_but_their_first_once(
    lengths: list[int], context_length: int, batch_size: int, seed: int
) -> None:
    tokens, starts = joined(lengths)
    blocks = blocks_of_epoch(len(tokens), context_length, np.random.default_rng(seed))
    predicted: list[int] = []
    for group in batches_of_blocks(blocks, batch_size):
        labels = collate_blocks(tokens, group, PAD, starts)["labels"][:, 1:]  # a model shifts them
        predicted += labels[labels != -100].tolist()
    assert sorted(predicted) == [token for token in tokens if token - 1 not in starts]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi", "relative"])
def test_a_packed_document_gets_the_logits_that_it_has_alone(positions: str, attention: str) -> None:
    torch.manual_seed(0)
    config = PaperformerLMConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=40,
        position_embedding_type=positions,
        use_cache=False,
    )
    model = PaperformerForCausalLM(config).eval()
    model.set_attn_implementation(attention)
    tokens, starts = joined([5, 1, 9, 3, 12, 4])
    blocks = np.array([[0, 20], [19, 34]])  # the second begins and ends inside of documents, and is padded
    batch = collate_blocks(tokens, blocks, PAD, starts)
    del batch["labels"]
    with torch.inference_mode():
        packed = model(**batch).logits
        for row, (start, end) in enumerate(blocks):
            inside = [start, *(begin for begin in starts if start < begin < end), end]
            for first, last in itertools.pairwise(inside):
                alone = model(input_ids=torch.from_numpy(tokens[None, first:last].astype(np.int64))).logits
                torch.testing.assert_close(packed[row, first - start : last - start], alone[0], atol=1e-5, rtol=0)


@given(st.integers(0, 200), st.integers(2, 30), st.data())
def test_windows_score_every_token_but_the_first_once_with_enough_context(
    num_tokens: int, context_length: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, context_length - 1))
    scored: list[int] = []
    for start, end, scored_from in evaluation_windows(num_tokens, context_length, stride):
        assert 0 <= start < scored_from < end <= num_tokens
        assert end - start <= context_length
        assert scored_from - start >= context_length - stride or start == 0
        scored += range(scored_from, end)
    assert scored == list(range(1, num_tokens))


@settings(max_examples=examples(30))
@given(st.integers(2, 300), st.integers(2, 30), st.data())
def test_there_are_no_more_windows_than_needed(num_tokens: int, context_length: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, context_length - 1))
    count = sum(1 for _ in evaluation_windows(num_tokens, context_length, stride))
    assert count == 1 + max(0, -(-(num_tokens - context_length) // stride))


@pytest.mark.parametrize("stride", [0, 8, 9])
def test_a_stride_that_leaves_no_context(stride: int) -> None:
    with pytest.raises(ValueError, match=rf"stride is {stride}; it must be from 1 to context_length - 1 \(7\)"):
        next(evaluation_windows(100, 8, stride))
