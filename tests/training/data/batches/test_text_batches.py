from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paperformer.tokenization import train_tokenizer
from paperformer.training.data.batches.masked_language_modeling import MaskedBlocks
from paperformer.training.data.batches.packing import CausalBlocks
from paperformer.training.data.batches.span_corruption import CorruptedBlocks
from paperformer.training.data.batches.text_batches import (
    BlockBatch,
    BlockOptions,
    CollateBlocks,
    StreamedTextBatches,
    TextBatches,
)
from paperformer.training.data.corpus import Corpus, build_corpus
from paperformer.training.data.readers.sources import Source, text_reader
from paperformer.training.data.tokenizing import batch_encoder, encoded_documents, tokenized_documents
from paperformer.training.recipe.cleaning import Cleaning

STORIES = {name: [f"{name} {n} " + "ran and " * (n % 9) for n in range(40)] for name in ("fox", "hen")}
TOKENIZER = train_tokenizer([line for lines in STORIES.values() for line in lines], 280, append_eos=False)
BOS, EOS = TOKENIZER.bos_token_id, TOKENIZER.eos_token_id
OPTIONS = {"block_length": 16, "blocks_per_batch": 4, "seed": 1, "is_causal": True, "ordinary_token_id": 279}
COLLATE, SEPARATE = (CausalBlocks(pad_token_id=0, separate_documents=separate) for separate in (False, True))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    readers = []
    for name, lines in STORIES.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        source = Source(path=str(tmp_path / f"{name}.txt"), documents="each")
        readers.append((source, text_reader(source)))
    return build_corpus(tmp_path / "cache", "data.train", readers, Cleaning(), ("en",))


def batches_of(
    corpus: Corpus, weights: tuple[float, float] = (1, 1), collate: CollateBlocks = COLLATE, **changes: Any
) -> TextBatches:
    store = tokenized_documents(corpus.folder.parent, corpus, TOKENIZER)
    return TextBatches(corpus, store, BlockOptions(**OPTIONS | changes), collate, weights=weights)


def blocks_of(pool: list[BlockBatch]) -> np.ndarray:
    return np.concatenate([batch.blocks for batch in pool])


def test_every_token_but_each_source_s_first_is_predicted_once(corpus: Corpus) -> None:
    batches = batches_of(corpus)
    for number in range(3):
        (pool,) = batches.pools(number, 0)
        predicted = np.zeros(len(batches.store.ids), dtype=int)
        for start, end in blocks_of(pool):
            assert end - start <= 16
            predicted[start + 1 : end] += 1
        first = batches.bounds[:-1]
        assert predicted[first].tolist() == [0, 0]
        assert np.delete(predicted, first).tolist() == [1] * (len(predicted) - 2)
        assert {len(batch.blocks) for batch in pool[:-1]} == {4}


def test_epochs_differ_and_can_be_repeated(corpus: Corpus) -> None:
    def order(number: int, seed: int = 1) -> list[list[list[int]]]:
        return [batch.blocks.tolist() for batch in next(batches_of(corpus, seed=seed).pools(number, 0))]

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0) != order(0, seed=2)
    assert list(batches_of(corpus).pools(0, 1)) == []


def test_sources_are_mixed_by_weight(corpus: Corpus) -> None:
    batches = batches_of(corpus, weights=(1, 3))
    blocks = blocks_of(next(batches.pools(0, 0)))
    of_second = (blocks[:, 0] >= batches.bounds[1]).mean()
    assert of_second == pytest.approx(3 / 4, abs=0.05)
    in_order = blocks[:, 0] >= batches.bounds[1]
    assert not np.array_equal(in_order, np.sort(in_order))  # and shuffled


def test_tensors_are_the_tokens_of_the_blocks(corpus: Corpus) -> None:
    batches = batches_of(corpus)
    tensors = batches.collate(BlockBatch(np.array([[10, 26], [5, 9]]), (0,)))
    ids = np.asarray(batches.store.ids)
    assert tensors["input_ids"].tolist() == [ids[10:26].tolist(), ids[5:9].tolist() + [0] * 12]
    assert tensors["labels"].tolist() == [ids[10:26].tolist(), ids[5:9].tolist() + [-100] * 12]
    assert tensors.keys() == {"input_ids", "labels"}


def test_separate_documents_count_their_own_positions(corpus: Corpus) -> None:
    batches = batches_of(corpus, collate=SEPARATE)
    starts = batches.store.starts
    tensors = batches.collate(BlockBatch(np.array([[0, 16]]), (0,)))
    expected = [position - max(start for start in starts if start <= position) for position in range(16)]
    assert tensors["position_ids"].tolist() == [expected]
    at_start = [position for position in range(16) if position in starts]
    assert len(at_start) > 1
    assert (tensors["labels"][0] == -100).nonzero().flatten().tolist() == at_start
    assert np.asarray(batches.store.ids)[at_start].tolist() == [BOS] * len(at_start)


@pytest.mark.parametrize("buffer", [9, 1000])
def test_a_stream_predicts_the_same_tokens(corpus: Corpus, buffer: int) -> None:
    def encode(chunks: Any) -> Any:
        return encoded_documents(chunks, batch_encoder(TOKENIZER, add_special_tokens=False), begin=BOS, end=EOS)

    stream = StreamedTextBatches(lambda epoch: corpus.chunks(), encode, BlockOptions(**OPTIONS), COLLATE, buffer)
    pools = list(stream.pools(0, 0))
    assert len(pools) == -(-80 // buffer)
    # Shared tokens of neighbouring blocks are not labels of the second: labels are shifted in the model.
    predicted = [label for pool in pools for batch in pool for row in batch["labels"] for label in row[1:].tolist()]
    tokens = np.asarray(batches_of(corpus).store.ids).tolist()
    expected = sorted(tokens)
    for _ in pools:  # the first token of a pool, a beginning mark, is not predicted
        expected.remove(BOS)
    assert sorted(label for label in predicted if label != -100) == expected
    again = list(stream.pools(0, 1))
    assert len(again) == len(pools) - 1
    for pool, other in zip(again, pools[1:], strict=True):
        assert all(torch.equal(a["labels"], b["labels"]) for a, b in zip(pool, other, strict=True))


@pytest.mark.parametrize("separate", [False, True])
def test_the_longest_batch_is_full(corpus: Corpus, separate: bool) -> None:
    nothing: Any = None
    collate = SEPARATE if separate else COLLATE
    stream = StreamedTextBatches(nothing, nothing, BlockOptions(**OPTIONS), collate, 10)
    for batches in (batches_of(corpus, collate=collate), stream):
        longest = batches.longest_batch()
        assert {tuple(tensor.shape) for tensor in longest.values()} == {(4, 16)}
        assert sorted(longest) == ["input_ids", "labels"] + ["position_ids"] * separate
    if separate:  # so that its attention needs a mask
        assert (longest["position_ids"][:, 1:] == 0).any()


def test_a_corpus_shorter_than_a_batch_has_a_short_longest_batch(corpus: Corpus) -> None:
    batches = batches_of(corpus, blocks_per_batch=10**6)
    (pool,) = batches.pools(0, 0)
    assert batches.longest_batch()["input_ids"].shape == (len(pool[0].blocks), 16)


MASKED = MaskedBlocks(is_ordinary=np.arange(280) > 3, mask_token_id=3, pad_token_id=0, probability=0.15)
CORRUPTED = CorruptedBlocks(
    sentinel_ids=np.arange(300, 310), eos_token_id=EOS, pad_token_id=0, noise_density=0.5, mean_span_length=2.0
)


@pytest.mark.parametrize("collate", [MASKED, CORRUPTED])
def test_what_is_hidden_follows_from_the_batch_and_differs_between_epochs(
    corpus: Corpus, collate: CollateBlocks
) -> None:
    batches = batches_of(corpus, collate=collate, is_causal=False)
    first, second = next(batches.pools(0, 0)), next(batches.pools(1, 0))
    once, again = batches.collate(first[0]), batches.collate(first[0])
    assert once.keys() == {"input_ids", "attention_mask", "labels"}
    assert all(torch.equal(once[name], again[name]) for name in once)
    of_another_epoch = batches.collate(BlockBatch(first[0].blocks, second[0].seed))
    assert not torch.equal(once["input_ids"], of_another_epoch["input_ids"])


def test_blocks_that_are_not_causal_share_no_token(corpus: Corpus) -> None:
    batches = batches_of(corpus, is_causal=False)
    (pool,) = batches.pools(0, 0)
    seen = np.zeros(len(batches.store.ids), dtype=int)
    for start, end in blocks_of(pool):
        seen[start:end] += 1
    assert seen.max() == 1
    assert (seen == 0).sum() <= 4  # of two sources, the ends: a single token is no block


def test_masked_labels_are_counted_from_the_first_position(corpus: Corpus) -> None:
    """A stream's longest batch is of a token that stands for text, or nothing of it would be masked."""
    nothing: Any = None
    options = BlockOptions(**OPTIONS | {"is_causal": False})
    longest = StreamedTextBatches(nothing, nothing, options, MASKED, 10).longest_batch()
    assert (longest["labels"] != -100).sum(1).tolist() == [2] * 4  # 15 % of 16
