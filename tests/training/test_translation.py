import itertools
from collections.abc import Callable

import pytest
import torch

from paperformer.tokenization import train_bpe
from paperformer.training.corpora import read_pairs
from paperformer.training.input_error import InputError
from paperformer.training.recipe import ParallelData, Recipe
from paperformer.training.translation import TranslationTask

MakeTask = Callable[..., TranslationTask]


@pytest.fixture
def make_task(seq2seq_recipe: Callable[..., Recipe[ParallelData]]) -> MakeTask:
    def make(**changes: object) -> TranslationTask:
        recipe = seq2seq_recipe(**changes)
        pairs = read_pairs(recipe.data)
        texts = list(itertools.chain.from_iterable(pairs["train"]))
        return TranslationTask(recipe, pairs, train_bpe(texts, 300, append_eos=True))

    return make


def test_batches_hold_sources_and_targets_with_their_end(make_task: MakeTask) -> None:
    task = make_task()
    eos, seen = task.tokenizer.eos_token_id, []
    for indices in task.epoch_batches(0):
        batch = task.collate(indices)
        assert batch["input_ids"].shape == batch["attention_mask"].shape
        for ids, mask, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True):
            source, target = ids[mask.bool()].tolist(), labels[labels != -100].tolist()
            assert source[-1] == target[-1] == eos
            assert set(ids[~mask.bool()].tolist()) <= {task.tokenizer.pad_token_id}
            seen.append(tuple(task.tokenizer.batch_decode([source, target], skip_special_tokens=True)))
    assert sorted(seen) == sorted(task.pairs["train"])


def test_epochs_differ_and_are_the_same_at_every_call(make_task: MakeTask) -> None:
    task = make_task()
    first, second, again = ([batch.tolist() for batch in make_task().epoch_batches(epoch)] for epoch in (0, 1, 0))
    assert first == again == [batch.tolist() for batch in task.epoch_batches(0)]
    assert first != second
    assert [batch.tolist() for batch in make_task(seed=2).epoch_batches(0)] != first


def test_long_pairs_are_left_out_of_training_only(make_task: MakeTask) -> None:
    whole, task = make_task(), make_task(data__max_length=12)
    lengths = [max(len(whole.tokenizer(side).input_ids) for side in pair) for pair in whole.pairs["train"]]
    kept = [pair for pair, length in zip(whole.pairs["train"], lengths, strict=True) if length <= 12]
    assert 0 < len(kept) < len(lengths)
    assert task.pairs["train"] == kept
    assert task.pairs["test"] == whole.pairs["test"]
    with pytest.raises(InputError, match=r"data.max_length is 2 tokens; every training pair is longer"):
        make_task(data__max_length=2)


def test_bpe_dropout_changes_segmentations_not_texts(make_task: MakeTask) -> None:
    task = make_task(tokenizer__bpe_dropout=0.5)

    def texts_and_ids(epoch: int) -> tuple[list[str], list[list[int]]]:
        rows = [row for indices in task.epoch_batches(epoch) for row in task.collate(indices)["input_ids"].tolist()]
        ids = [[token for token in row if token != task.tokenizer.pad_token_id] for row in rows]
        return sorted(task.tokenizer.batch_decode(ids, skip_special_tokens=True)), sorted(ids)

    texts, ids = texts_and_ids(0)
    other_texts, other_ids = texts_and_ids(1)
    assert texts == other_texts == sorted(source for source, _ in task.pairs["train"])
    assert ids != other_ids
    assert texts_and_ids(0) == (texts, ids)  # a run that is resumed in epoch 0 sees the same


def test_the_model_is_made_for_the_tokenizer(make_task: MakeTask) -> None:
    task = make_task(evaluation__num_beams=3, evaluation__length_penalty=0.6)
    model = task.build_model()
    assert model.config.vocab_size == len(task.tokenizer)
    assert model.config.decoder_start_token_id == task.tokenizer.bos_token_id
    settings = model.generation_config
    assert (settings.num_beams, settings.length_penalty, settings.max_new_tokens) == (3, 0.6, 100)


def test_scores_of_validation_and_test(make_task: MakeTask) -> None:
    task = make_task(evaluation__select_by="chrf")
    model = task.build_model()
    assert task.validate(model).keys() == {"loss", "bleu", "chrf", "exact_match"}
    scores, outputs = task.evaluate(model, "test")
    assert (scores["task"], scores["split"], scores["sentences"]) == ("translation", "test", 5)
    assert scores["decoding"] == {"num_beams": 2, "length_penalty": 1.0}
    assert len(outputs) == 5
    assert (
        task.samples(outputs) == [(*pair, output) for pair, output in zip(task.pairs["test"], outputs, strict=True)][:2]
    )
    assert [(split.name, split.examples) for split in task.splits()] == [("train", 48), ("validation", 5), ("test", 5)]


def test_texts_longer_than_the_model_s_positions_are_cut_off(make_task: MakeTask) -> None:
    sizes = {"data__max_length": 30, "model__max_position_embeddings": 30, "model__position_embedding_type": "learned"}
    task = make_task(**sizes)
    task.pairs["test"] = [("a dog " * 50, "ein Hund " * 50)]
    scores, outputs = task.evaluate(task.build_model(), "test")
    assert scores["loss"]["tokens"] == 30
    assert len(outputs) == 1


def test_a_good_translation_has_a_good_score(make_task: MakeTask) -> None:
    task = make_task(optimization__tokens_per_batch=400, model__hidden_size=64, model__dropout=0, data__max_length=40)
    torch.manual_seed(0)
    model = task.build_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(40):
        for indices in task.epoch_batches(epoch):
            model(**task.collate(indices)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    scores, outputs = task.evaluate(model, "test")
    assert outputs == [target for _, target in task.pairs["test"]]  # in their order
    assert scores["exact_match"] == 100
    assert scores["bleu"]["score"] == pytest.approx(100)
