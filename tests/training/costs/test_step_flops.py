import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paperformer import PaperformerEncoderConfig, PaperformerLMConfig, PaperformerSeq2SeqConfig
from paperformer.modeling.families import Config
from paperformer.modeling.linear_attention import CHUNK_SIZE
from paperformer.training.costs.flops import training_flops
from paperformer.training.costs.parameters import count_parameters
from paperformer.training.costs.step_flops import StepFlops
from paperformer.training.data.batches.packing import collate_blocks
from paperformer.training.data.batches.pair_batches import BatchOptions
from paperformer.training.data.batches.token_budget import Batch


def sequences(lengths: list[int]) -> list[list[int]]:
    return [[5] * length for length in lengths]


def pair_batch(sources: list[int], targets: list[int]) -> Batch:
    options = BatchOptions(max_length=999, truncate=False, tokens_per_batch=9, seed=1, pad_token_id=0)
    return options.tensors(sequences(sources), sequences(targets))


def text_batch(lengths: list[int], **more: Any) -> Batch:
    ends = np.cumsum(lengths)
    blocks = np.stack((ends - lengths, ends), axis=1)
    return collate_blocks(np.full(ends[-1], 5), blocks, pad_token_id=0, **more)


def seq2seq(**options: Any) -> PaperformerSeq2SeqConfig:
    return PaperformerSeq2SeqConfig(encoder_layers=3, decoder_layers=2, vocab_size=97, **options)


LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=6)


@given(LENGTHS)
def test_a_batch_of_pairs_costs_what_its_rows_cost_by_themselves(pairs: list[tuple[int, int]]) -> None:
    config = seq2seq(num_key_value_heads=2, gated_mlp=True)
    expected = sum(training_flops(config, target, source) for source, target in pairs)
    sources, targets = map(list, zip(*pairs, strict=True))
    assert StepFlops(config)(pair_batch(sources, targets)) == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.integers(2, 90), min_size=1, max_size=6), st.booleans())
def test_a_batch_of_text_costs_what_its_rows_cost_by_themselves(lengths: list[int], is_masked: bool) -> None:
    family: type[Config] = PaperformerEncoderConfig if is_masked else PaperformerLMConfig
    config = family(num_hidden_layers=3, vocab_size=97, pad_token_id=0)
    batch = text_batch(lengths)
    if is_masked:
        batch["attention_mask"] = (batch["input_ids"] != 0).long()
        batch["labels"][:] = -100  # of most tokens
    expected = sum(training_flops(config, length) for length in lengths)
    assert StepFlops(config)(batch) == pytest.approx(expected, rel=1e-12)


def test_documents_in_one_row_count_as_one() -> None:
    config = PaperformerLMConfig(num_hidden_layers=1, vocab_size=97, pad_token_id=0)
    batch = text_batch([8, 5], document_starts=np.array([0, 3, 7, 12]))
    assert (batch["labels"][0] == -100).sum() > 1  # first tokens, which are no padding
    assert StepFlops(config)(batch) == pytest.approx(training_flops(config, 8) + training_flops(config, 5))


def test_a_vocabulary_without_padding() -> None:
    config = PaperformerLMConfig(num_hidden_layers=1, vocab_size=97, pad_token_id=None)
    batch = {"input_ids": torch.zeros(2, 8, dtype=torch.long), "labels": torch.zeros(2, 8, dtype=torch.long)}
    assert StepFlops(config)(batch) == 2 * training_flops(config, 8)


@given(LENGTHS, st.integers(1, 4))
def test_rows_add_up_and_padding_is_free(pairs: list[tuple[int, int]], repetitions: int) -> None:
    flops, (sources, targets) = StepFlops(seq2seq()), map(list, zip(*pairs, strict=True))
    once = flops(pair_batch(sources, targets))
    assert flops(pair_batch(sources * repetitions, targets * repetitions)) == pytest.approx(
        repetitions * once, rel=1e-12
    )
    longest = flops(pair_batch([80], [80]))
    assert flops(pair_batch([*sources, 80], [*targets, 80])) == pytest.approx(once + longest, rel=1e-12)


def test_the_formula_of_chowdhery() -> None:
    """6 N + 12 L H Q T a token (Chowdhery et al. 2022, appendix B), where N are the weights of matrices."""
    config = PaperformerLMConfig.from_preset("gpt2")
    parts, length = count_parameters(config), 512
    biases = config.num_hidden_layers * (4 * 768 + 4 * 768 + 768)
    weights = parts["attention"] + parts["feed-forward"] + parts["embeddings"] - biases  # tied: it is the head as well
    per_token = 6 * weights + 12 * 12 * 12 * 64 * length
    assert StepFlops(config)(text_batch([length, length])) == pytest.approx(2 * length * per_token, rel=1e-12)


def test_what_is_computed_again_is_no_work_of_the_model() -> None:
    config = seq2seq()
    assert StepFlops(config)(pair_batch([9], [7])) < training_flops(config, 7, 9, gradient_checkpointing=True)


def test_causal_linear_attention_counts_the_tokens_of_its_last_chunk() -> None:
    options = {"linear_attention": True, "position_embedding_type": "none", "pad_token_id": 0}
    config = PaperformerLMConfig(num_hidden_layers=2, vocab_size=97, **options)
    flops = StepFlops(config)
    whole = training_flops(config, 3 * CHUNK_SIZE)
    assert flops(text_batch([3 * CHUNK_SIZE])) == pytest.approx(whole, rel=1e-12)
    assert flops(text_batch([CHUNK_SIZE // 4])) == pytest.approx(whole / 12, rel=1e-12)
    pairs = seq2seq(linear_attention=True, position_embedding_type="none")
    expected = training_flops(pairs, 2 * CHUNK_SIZE, 33)
    assert StepFlops(pairs)(pair_batch([33], [2 * CHUNK_SIZE])) == pytest.approx(expected, rel=1e-12)


def test_counting_takes_microseconds() -> None:
    flops, batch = StepFlops(seq2seq()), pair_batch([20] * 200, [20] * 200)
    flops(batch)

    def timed() -> float:
        start = time.perf_counter()
        flops(batch)
        return time.perf_counter() - start

    assert min(timed() for _ in range(50)) < 1e-3
