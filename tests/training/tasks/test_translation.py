from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from paperformer.tokenization import train_tokenizer
from paperformer.training.console.input_error import InputError
from paperformer.training.data.splits import pair_splits
from paperformer.training.data.tokenizers import Tokenizers
from paperformer.training.evaluation.evaluation_file import fields_of
from paperformer.training.recipe.data import ParallelData
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.tasks.protocols import Task
from paperformer.training.tasks.translation import translation_task

MakeTask = Callable[..., Task]


@pytest.fixture
def make_task(seq2seq_recipe: Callable[..., Recipe[ParallelData]]) -> MakeTask:
    def make(**changes: object) -> Task:
        recipe = seq2seq_recipe(**changes)
        splits = pair_splits(recipe)
        if recipe.tokenizer.separate:
            tokenizers = [
                train_tokenizer(splits.train.texts(side), 290, append_eos=True) for side in ("source", "target")
            ]
        else:
            tokenizers = [train_tokenizer(splits.train.texts("source", "target"), 300, append_eos=True)] * 2
        return translation_task(recipe, splits, Tokenizers(*tokenizers))

    return make


def evaluated(task: Task, model: Any, split: str) -> tuple[dict[str, Any], list[str]]:
    """Scores as evaluation.json has them, and outputs."""
    evaluation = task.scoring.evaluate(model, split)
    return fields_of(evaluation.scores), list(evaluation.outputs)


def epoch_of(task: Task, number: int = 0) -> list[Any]:
    return list(chain.from_iterable(task.batches.pools(number, 0)))


def training_pairs(task: Task) -> list[tuple[str, str]]:
    return [tuple(row.values()) for chunk in task.scoring.splits.train.chunks() for row in chunk.to_pylist()]


def test_batches_hold_sources_and_targets_with_their_end(make_task: MakeTask) -> None:
    task = make_task()
    tokenizer = task.scoring.tokenizers.source
    eos, seen = tokenizer.eos_token_id, []
    for planned in epoch_of(task):
        batch = task.batches.collate(planned)
        assert batch["input_ids"].shape == batch["attention_mask"].shape
        for ids, mask, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True):
            source, target = ids[mask.bool()].tolist(), labels[labels != -100].tolist()
            assert source[-1] == target[-1] == eos
            assert set(ids[~mask.bool()].tolist()) <= {tokenizer.pad_token_id}
            seen.append(tuple(tokenizer.batch_decode([source, target], skip_special_tokens=True)))
    assert sorted(seen) == sorted(training_pairs(task))


def test_long_pairs_are_left_out_of_training_only(make_task: MakeTask) -> None:
    whole, task = make_task(), make_task(data__max_length=12)
    lengths = [max(map(len, whole.scoring.tokenizers.source(list(pair)).input_ids)) for pair in training_pairs(whole)]
    kept = sum(length <= 12 for length in lengths)
    assert 0 < kept < len(lengths)
    facts, all_facts = task.batches.facts(), whole.batches.facts()
    assert (facts.examples, all_facts.examples) == (kept, len(lengths))
    assert 0 < facts.tokens < all_facts.tokens
    assert sum(len(planned) for planned in epoch_of(task)) == kept
    assert task.scoring.pairs["test"] == whole.scoring.pairs["test"]
    truncating = make_task(data__max_length=12, data__too_long="truncate")
    assert sum(len(planned) for planned in epoch_of(truncating)) == len(lengths)
    with pytest.raises(InputError, match=r"data.max_length is 2 tokens; every training pair is longer"):
        make_task(data__max_length=2)


@pytest.mark.parametrize("streaming", [False, True])
def test_bpe_dropout_changes_segmentations_not_texts(make_task: MakeTask, streaming: bool) -> None:
    task = make_task(tokenizer__bpe_dropout=0.5, data__streaming=str(streaming).lower())
    tokenizer = task.scoring.tokenizers.source

    def texts_and_ids(epoch: int) -> tuple[list[str], list[list[int]]]:
        rows = [row for planned in epoch_of(task, epoch) for row in task.batches.collate(planned)["input_ids"].tolist()]
        ids = [[token for token in row if token != tokenizer.pad_token_id] for row in rows]
        return sorted(tokenizer.batch_decode(ids, skip_special_tokens=True)), sorted(ids)

    texts, ids = texts_and_ids(0)
    other_texts, other_ids = texts_and_ids(1)
    assert texts == other_texts == sorted(source for source, _ in training_pairs(task))
    assert ids != other_ids
    assert texts_and_ids(0) == (texts, ids)  # a run that is resumed in epoch 0 sees the same


def test_a_stream_trains_on_the_same_pairs(make_task: MakeTask) -> None:
    task = make_task(data__streaming="true", data__shuffle_buffer=20)
    assert len(list(task.batches.pools(0, 0))) == 3
    tokenizer, seen = task.scoring.tokenizers.source, []
    for planned in epoch_of(task):
        batch = task.batches.collate(planned)
        seen += tokenizer.batch_decode(batch["input_ids"], skip_special_tokens=True)
    assert sorted(seen) == sorted(source for source, _ in training_pairs(task))
    assert "made while training" in task.batches.describe()
    assert task.batches.facts().examples is None


def test_separate_vocabularies(make_task: MakeTask) -> None:
    task = make_task(tokenizer__separate="true", model__share_embeddings="false")
    model = task.build_model()
    assert (model.config.source_vocab_size, model.config.vocab_size) == tuple(
        -(-len(tokenizer) // 8) * 8 for tokenizer in task.scoring.tokenizers
    )
    batch = task.batches.collate(epoch_of(task)[0])
    labels = batch["labels"].clamp(min=0)
    sides = (
        task.scoring.tokenizers.source.batch_decode(batch["input_ids"], skip_special_tokens=True),
        task.scoring.tokenizers.target.batch_decode(labels, skip_special_tokens=True),
    )
    assert set(zip(*sides, strict=True)) <= set(training_pairs(task))
    scores, outputs = evaluated(task, model, "test")
    assert len(outputs) == 5
    assert scores["loss"]["tokens"] == sum(
        len(task.scoring.tokenizers.target(target).input_ids) for _, target in task.scoring.pairs["test"]
    )


def test_the_first_epoch_is_described(make_task: MakeTask) -> None:
    task = make_task()
    assert f"an epoch: {len(epoch_of(task))} batches of up to 100 tokens a side, " in task.batches.describe()


def test_the_model_is_made_for_the_tokenizer(make_task: MakeTask) -> None:
    task = make_task(evaluation__num_beams=3, evaluation__length_penalty=0.6)
    model = task.build_model()
    assert model.config.vocab_size == 304  # 300, and rows up to a multiple of 8
    assert model.config.decoder_start_token_id == task.scoring.tokenizers.target.bos_token_id
    settings = model.generation_config
    assert (settings.num_beams, settings.length_penalty, settings.max_new_tokens) == (3, 0.6, 100)


def test_one_beam_needs_no_length_penalty(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(evaluation__num_beams=1, evaluation__length_penalty=0.6)
    model = task.build_model()
    model.generation_config.save_pretrained(tmp_path)  # which refuses a penalty without beams
    assert task.scoring.evaluate(model, "test").decoding == {"num_beams": 1, "length_penalty": 1.0}


def test_scores_of_validation_and_test(make_task: MakeTask) -> None:
    task = make_task(evaluation__select_by="chrf")
    model = task.build_model()
    assert {score.metric.name for score in task.scoring.validate(model)} == {"loss", "bleu", "chrf", "exact_match"}
    scores, outputs = evaluated(task, model, "test")
    assert scores["sentences"] == 5
    assert task.scoring.evaluate(model, "test").decoding == {"num_beams": 2, "length_penalty": 1.0}
    assert len(outputs) == 5
    assert (
        task.scoring.samples(outputs)
        == [(*pair, output) for pair, output in zip(task.scoring.pairs["test"], outputs, strict=True)][:2]
    )
    assert [(split.name, split.examples) for split in [task.batches.facts(), *task.scoring.facts()]] == [
        ("train", 48),
        ("validation", 5),
        ("test", 5),
    ]


def test_the_recipe_says_how_outputs_are_scored(make_task: MakeTask) -> None:
    task = make_task(evaluation__bleu_tokenizer="char", evaluation__lowercase=True, evaluation__select_by="bleu")
    model = task.build_model()
    scores, _ = evaluated(task, model, "test")
    assert scores["bleu"]["confidence"]["resamples"] == 1000
    for signature in (scores["bleu"]["signature"], task.scoring.validate(model)[1].signature):
        assert "case:lc|eff:no|tok:char" in signature


def test_texts_longer_than_the_model_s_positions_are_cut_off(make_task: MakeTask) -> None:
    sizes = {"data__max_length": 30, "model__max_position_embeddings": 30, "model__position_embedding_type": "learned"}
    task = make_task(**sizes)
    task.scoring.pairs["test"] = [("a dog " * 50, "ein Hund " * 50)]
    scores, outputs = evaluated(task, task.build_model(), "test")
    assert scores["loss"]["tokens"] == 30
    assert len(outputs) == 1


def test_a_good_translation_has_a_good_score(make_task: MakeTask) -> None:
    task = make_task(optimization__tokens_per_batch=400, model__hidden_size=64, model__dropout=0, data__max_length=40)
    torch.manual_seed(0)
    model = task.build_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(40):
        for planned in epoch_of(task, epoch):
            model(**task.batches.collate(planned), return_logits=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    scores, outputs = evaluated(task, model, "test")
    assert outputs == [target for _, target in task.scoring.pairs["test"]]  # in their order
    assert scores["exact_match"] == 100
    assert scores["bleu"]["score"] == pytest.approx(100)
