from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paperformer.tokenization import train_tokenizer
from paperformer.training.data.batches.pair_batches import BatchOptions, PairBatches, StreamedPairBatches
from paperformer.training.data.corpus import Corpus, build_corpus
from paperformer.training.data.readers.sources import Source, pair_reader
from paperformer.training.data.tokenizing import batch_encoder, tokenized_pairs
from paperformer.training.recipe.cleaning import Cleaning

PAIRS = [(f"{n} dogs" + " run" * (n % 7), f"{n} Hunde" + " laufen" * (n % 5)) for n in range(90)]
TOKENIZER = train_tokenizer([text for pair in PAIRS for text in pair], 290, append_eos=True, show_progress=False)
STUTTERED = TOKENIZER.decode([4])
OPTIONS = {"max_length": 30, "truncate": False, "tokens_per_batch": 120, "seed": 1, "pad_token_id": 0}


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    readers = []
    for name, pairs in {"a": PAIRS[:60], "b": PAIRS[60:]}.items():
        (tmp_path / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        source = Source(path=str(tmp_path / f"{name}.tsv"))
        readers.append((source, pair_reader(source, "en", "de")))
    return build_corpus(tmp_path / "cache", "data.train", readers, Cleaning(), ("en", "de"))


def batches_of(corpus: Corpus, weights: Sequence[float] = (1, 1), **changes: Any) -> PairBatches:
    store = tokenized_pairs(corpus.folder.parent, corpus, (TOKENIZER, TOKENIZER))
    return PairBatches(corpus, store, BatchOptions(**OPTIONS | changes), weights=weights)


def decoded(batch: dict[str, Any]) -> list[tuple[str, str]]:
    sides = [batch["input_ids"].tolist(), [[i for i in row if i != -100] for row in batch["labels"].tolist()]]
    return list(zip(*(TOKENIZER.batch_decode(ids, skip_special_tokens=True) for ids in sides), strict=True))


def epoch(batches: Any, number: int = 0) -> list[dict[str, Any]]:
    return [batches.collate(batch) for pool in batches.pools(number, 0) for batch in pool]


def test_an_epoch_has_every_pair_once_within_the_budget(corpus: Corpus) -> None:
    tensors = epoch(batches_of(corpus))
    assert sorted(pair for batch in tensors for pair in decoded(batch)) == sorted(PAIRS)
    for batch in tensors:
        rows = len(batch["input_ids"])
        assert rows * max(batch["input_ids"].shape[1], batch["labels"].shape[1]) <= 120
        assert batch["attention_mask"].tolist() == (batch["input_ids"] != 0).long().tolist()


def test_the_order_depends_on_seed_and_epoch_alone(corpus: Corpus) -> None:
    def order(number: int, seed: int = 1) -> list[list[int]]:
        return [rows.tolist() for rows in next(batches_of(corpus, seed=seed).pools(number, 0))]

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0) != order(0, seed=2)
    assert list(batches_of(corpus).pools(0, 1)) == []


def test_pairs_that_are_too_long_are_left_out_or_cut(corpus: Corpus) -> None:
    lengths = {pair: max(map(len, TOKENIZER(list(pair)).input_ids)) for pair in PAIRS}
    dropping = batches_of(corpus, max_length=8)
    kept = [pair for batch in epoch(dropping) for pair in decoded(batch)]
    assert sorted(kept) == sorted(pair for pair, length in lengths.items() if length <= 8)
    assert 0 < len(kept) < len(PAIRS)
    assert sum(dropping.sizes) == len(kept)
    cut = epoch(batches_of(corpus, max_length=8, truncate=True))
    assert sum(len(batch["input_ids"]) for batch in cut) == len(PAIRS)
    for batch in cut:
        for ids in (batch["input_ids"], batch["labels"].clamp(min=0)):
            assert ids.shape[1] <= 8
            assert (ids == TOKENIZER.eos_token_id).sum(dim=1).tolist() == [1] * len(ids)  # the end mark is kept


def test_sources_are_mixed_by_weight(corpus: Corpus) -> None:
    rows = np.concatenate(next(batches_of(corpus, weights=(1, 4)).pools(0, 0)))
    # 60 x 1 and 30 x 4 of 90 rows: a third and two thirds.
    assert [int((rows < 60).sum()), int((rows >= 60).sum())] == [30, 60]
    assert set(rows[rows >= 60].tolist()) == set(range(60, 90))


def stutter(texts: Sequence[str], seed: int) -> list[list[int]]:
    """The ids of each text, some of them several times."""
    rng = np.random.default_rng(seed)
    return [[4] * int(rng.integers(9)) + ids for ids in TOKENIZER(list(texts)).input_ids]


def resegmented(corpus: Corpus, **changes: Any) -> StreamedPairBatches:
    return StreamedPairBatches.resegmenting(batches_of(corpus, **changes), (stutter, stutter))


def test_what_is_segmented_at_random_is_planned_by_what_comes_of_it(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paperformer.training.data.batches.pair_batches.RESEGMENTED_PAIRS", 40)
    batches = resegmented(corpus)
    pools = list(batches.pools(0, 0))
    assert [sum(map(len, pool)) for pool in pools] == [40, 40, 10]
    assert list(batches.pools(0, 2)) == pools[2:]
    assert list(batches.pools(0, 0)) == pools != list(batches.pools(1, 0))
    tensors = [batches.collate(batch) for pool in pools for batch in pool]
    assert {
        (s.lstrip(STUTTERED).strip(), t.lstrip(STUTTERED).strip()) for batch in tensors for s, t in decoded(batch)
    } == set(PAIRS)
    for batch in tensors:
        assert len(batch["input_ids"]) * max(batch["input_ids"].shape[1], batch["labels"].shape[1]) <= 120
    assert any((batch["input_ids"] == 4).any() for batch in tensors)
    assert batches.facts() == batches_of(corpus).facts()


def test_what_becomes_too_long_by_it_is_left_out_this_time(corpus: Corpus) -> None:
    longest = max(len(ids) for pair in PAIRS for ids in TOKENIZER(list(pair)).input_ids)
    counts = [sum(map(len, next(resegmented(corpus, max_length=longest).pools(number, 0)))) for number in range(6)]
    assert all(count < len(PAIRS) for count in counts)
    assert len(set(counts)) > 1


def test_statistics_are_those_of_the_tensors(corpus: Corpus) -> None:
    batches = batches_of(corpus)
    tensors = epoch(batches)
    positions = sum(batch["input_ids"].numel() + batch["labels"].numel() for batch in tensors)
    padding = sum(int((batch["input_ids"] == 0).sum() + (batch["labels"] == -100).sum()) for batch in tensors)
    assert batches.statistics() == (len(tensors), pytest.approx(padding / positions))


@pytest.mark.parametrize("buffer", [1, 7, 90, 1000])
def test_a_stream_has_the_same_pairs_in_pools_that_can_be_skipped(corpus: Corpus, buffer: int) -> None:
    def chunks(number: int) -> Iterator[pa.RecordBatch]:
        for chunk in corpus.chunks():
            yield from (chunk.slice(first, 11) for first in range(0, len(chunk), 11))

    encoded: list[int] = []

    def encode(texts: Sequence[str], seed: int) -> list[list[int]]:
        encoded.append(len(texts))
        return batch_encoder(TOKENIZER)(list(texts))

    stream = StreamedPairBatches(
        chunks=chunks, encoders=(encode, encode), options=BatchOptions(**OPTIONS), buffer=buffer
    )
    pools = list(stream.pools(0, 0))
    assert len(pools) == -(-90 // buffer)
    assert sorted(pair for pool in pools for batch in pool for pair in decoded(stream.collate(batch))) == sorted(PAIRS)
    assert max(encoded) <= buffer
    encoded.clear()
    assert list(stream.pools(0, 2)) == pools[2:]
    assert sum(encoded) == 2 * max(0, 90 - 2 * buffer)  # what is skipped is not tokenised
    if buffer >= 90:
        assert list(stream.pools(1, 0)) != pools


def test_the_batches_can_go_to_another_process(corpus: Corpus) -> None:
    import pickle

    for batches in (batches_of(corpus), resegmented(corpus)):
        planned = next(iter(batches.pools(0, 0)))[0]
        copy = pickle.loads(pickle.dumps(batches.collate))
        assert copy(planned)["labels"].tolist() == batches.collate(planned)["labels"].tolist()


def test_the_longest_batch_has_as_many_positions_as_any(corpus: Corpus) -> None:
    batches = batches_of(corpus)
    longest = batches.longest_batch()
    sizes = [
        (batch["input_ids"].numel() + batch["labels"].numel(), batch["labels"].shape[1]) for batch in epoch(batches)
    ]
    assert longest["input_ids"].numel() + longest["labels"].numel() == max(sizes)[0]
    assert max(longest["input_ids"].shape[1], longest["labels"].shape[1]) >= max(sizes)[1]
    assert sorted(longest) == ["attention_mask", "input_ids", "labels"]


def test_of_a_truncated_pair_only_what_is_left_counts(corpus: Corpus) -> None:
    batches = batches_of(corpus, truncate=True, max_length=3, tokens_per_batch=12)
    assert {tuple(tensor.shape) for tensor in batches.longest_batch().values()} == {(4, 3)}


@pytest.mark.parametrize(("tokens", "shape"), [(120, (4, 30)), (100, (4, 30)), (90, (3, 30)), (20, (1, 30))])
def test_no_batch_of_a_stream_is_larger_than_its_longest(tokens: int, shape: tuple[int, int]) -> None:
    options = BatchOptions(**OPTIONS | {"tokens_per_batch": tokens})
    nothing: Any = None
    longest = StreamedPairBatches(chunks=nothing, encoders=nothing, options=options, buffer=10).longest_batch()
    assert {tuple(tensor.shape) for tensor in longest.values()} == {shape}
    assert longest["attention_mask"].all()
    assert (longest["labels"] >= 0).all()
