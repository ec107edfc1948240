from collections.abc import Callable

import numpy as np
import pytest

from paperformer.tokenization import train_bpe
from paperformer.training import language_modeling
from paperformer.training.corpora import read_documents
from paperformer.training.input_error import InputError
from paperformer.training.language_modeling import LanguageModelingTask
from paperformer.training.recipe import Recipe, TextData

MakeTask = Callable[..., LanguageModelingTask]


@pytest.fixture
def make_task(lm_recipe: Callable[..., Recipe[TextData]]) -> MakeTask:
    def make(documents: dict[str, list[str]] | None = None, **changes: object) -> LanguageModelingTask:
        recipe = lm_recipe(**changes)
        text = read_documents(recipe.data)
        return LanguageModelingTask(recipe, documents or text, train_bpe(text["train"], 300, append_eos=False))

    return make


def test_documents_begin_with_bos_and_decode_to_themselves(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_modeling, "LINES_AT_ONCE", 3)
    monkeypatch.setattr(language_modeling, "GROUPS_AT_ONCE", 2)
    task = make_task()
    for split, texts in task.documents.items():
        [ids] = task.ids[split]
        assert ids[0] == task.tokenizer.bos_token_id
        assert task.tokenizer.decode(ids[1:]) == texts[0]


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_contexts_of_an_epoch_do_not_overlap_and_cover_the_text(make_task: MakeTask, epoch: int) -> None:
    task = make_task()
    batches = task.epoch_batches(epoch)
    assert {len(batch) for batch in batches} == {4}  # 64 tokens a batch, 16 a context
    starts = np.sort(np.concatenate(batches))
    assert (np.diff(starts) >= 16).all()
    assert len(task.stream) - 16 * len(starts) < 16 * (4 + 2)  # at most a batch, the offset and the end are left over
    batch = task.collate(batches[0])
    assert batch["input_ids"].shape == (4, 16)
    assert batch["input_ids"].tolist() == [task.stream[start : start + 16].tolist() for start in batches[0]]
    assert batch["labels"] is batch["input_ids"]


def test_epochs_cut_at_other_places_and_are_the_same_at_every_call(make_task: MakeTask) -> None:
    def starts(epoch: int, **changes: object) -> list[int]:
        return np.concatenate(make_task(**changes).epoch_batches(epoch)).tolist()

    assert starts(0) == starts(0)
    assert starts(0) != starts(0, seed=2)
    assert len({start % 16 for epoch in range(8) for start in starts(epoch)}) > 1


def test_text_of_one_context_trains_and_a_shorter_one_does_not(make_task: MakeTask) -> None:
    task = make_task()
    length = len(task.stream)
    changes = {"optimization__tokens_per_batch": 4096, "model__max_position_embeddings": 4096}
    changes["data__context_length"] = length
    assert [batch.tolist() for batch in make_task(**changes).epoch_batches(3)] == [[0]]
    changes["data__context_length"] = length + 1
    with pytest.raises(InputError, match=rf"data.train has {length:,} tokens; it needs at least data.context_length"):
        make_task(**changes)


def test_scores_and_samples(make_task: MakeTask) -> None:
    task = make_task(data__context_length=64)
    model = task.build_model()
    assert model.config.vocab_size == len(task.tokenizer)
    assert model.generation_config.max_new_tokens == 32
    validation = task.validate(model)
    scores, outputs = task.evaluate(model, "validation")
    assert outputs == []
    assert validation == {"loss": scores["loss"]["nats_per_token"], "bits_per_byte": scores["bits_per_byte"]}
    assert scores["loss"]["tokens"] == len(task.ids["validation"][0]) - 1
    scores, outputs = task.evaluate(model, "test")
    assert (scores["task"], scores["split"]) == ("text-generation", "test")
    assert outputs == task.evaluate(model, "test")[1]  # the same at every call, though sampled
    prompts = [prompt for prompt, _ in task.samples(outputs)]
    assert prompts == ["A dog sleeps. Ein Hund schläft.\n", "A dog runs away. Ein Hund läuft weg.\n"]
    assert [(split.name, split.examples) for split in task.splits()] == [("train", 1), ("validation", 1), ("test", 1)]


def test_a_long_first_line_is_cut_to_a_prompt_that_leaves_room(make_task: MakeTask) -> None:
    text = {split: ["a dog and a cat " * 40 + "\n"] for split in ("train", "validation", "test")}
    positions = {"model__position_embedding_type": "learned", "model__max_position_embeddings": 16}
    task = make_task(text, **positions)
    _, outputs = task.evaluate(task.build_model(), "test")
    [(prompt, _)] = task.samples(outputs)
    assert 0 < len(task.tokenizer(prompt).input_ids) <= 8
    assert text["test"][0].startswith(prompt)
