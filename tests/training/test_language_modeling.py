from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from paperformer.tokenization import train_tokenizer
from paperformer.training.corpora import text_splits
from paperformer.training.input_error import InputError
from paperformer.training.language_modeling import LanguageModelingTask
from paperformer.training.options.data import TextData
from paperformer.training.recipe import Recipe
from paperformer.training.run_tokenizers import Tokenizers

MakeTask = Callable[..., LanguageModelingTask]


@pytest.fixture
def make_task(lm_recipe: Callable[..., Recipe[TextData]], text_folder: Path) -> MakeTask:
    tokenizer = train_tokenizer((text_folder / "train.txt").open(), 300, append_eos=False)

    def make(**changes: object) -> LanguageModelingTask:
        recipe = lm_recipe(**changes)
        return LanguageModelingTask(recipe, text_splits(recipe), Tokenizers(tokenizer, tokenizer))

    return make


def epoch_of(task: LanguageModelingTask, number: int = 0) -> list[Any]:
    return list(chain.from_iterable(task.pools(number, 0)))


def test_documents_lie_between_marks_and_decode_to_themselves(make_task: MakeTask, text_folder: Path) -> None:
    task = make_task()
    for split, store in task.held_out.items():
        [[ids]] = [store.row(index) for index in range(len(store))]
        assert (ids[0], ids[-1]) == (task.tokenizer.bos_token_id, task.tokenizer.eos_token_id)
        assert task.tokenizer.decode(ids[1:-1].tolist()) == (text_folder / f"{split}.txt").read_text("utf-8")


def test_batches_hold_as_many_contexts_as_the_budget_allows(make_task: MakeTask) -> None:
    task = make_task()
    batches = [task.collate(planned) for planned in epoch_of(task)]
    assert {len(batch["input_ids"]) for batch in batches[:-1]} == {4}  # 64 tokens a batch, 16 a context
    assert max(batch["input_ids"].shape[1] for batch in batches) == 16
    labels = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
    assert labels == task.splits()[0].tokens - 1  # all but the first are predicted
    assert task.describe_batches() == f"an epoch: {len(batches)} batches of 4 x 16 tokens"


@pytest.mark.parametrize("streaming", ["false", "true"])
def test_documents_can_be_kept_apart(make_task: MakeTask, streaming: str) -> None:
    task = make_task(data__separate_documents="true", data__documents="each", data__streaming=streaming)
    batch = task.collate(epoch_of(task)[0])
    begins = batch["input_ids"] == task.tokenizer.bos_token_id
    assert begins.any()
    assert (batch["position_ids"][begins] == 0).all()
    assert (batch["labels"][begins] == -100).all()


def test_a_stream_has_the_same_tokens(make_task: MakeTask) -> None:
    def labels(task: LanguageModelingTask) -> int:
        return sum(int((task.collate(planned)["labels"][:, 1:] != -100).sum()) for planned in epoch_of(task))

    stream = make_task(data__streaming="true")
    assert labels(stream) == labels(make_task())
    assert stream.splits()[0].examples is None
    assert stream.describe_batches() == "batches of 4 x 16 tokens, made while training"


def test_text_of_one_context_trains_and_a_shorter_one_does_not(make_task: MakeTask) -> None:
    length = make_task().splits()[0].tokens
    changes = {"optimization__tokens_per_batch": 4096, "model__max_position_embeddings": 4096}
    assert epoch_of(make_task(**changes, data__context_length=length))
    with pytest.raises(InputError, match=rf"data.train has {length:,} tokens; it needs at least data.context_length"):
        make_task(**changes, data__context_length=length + 1)


def test_scores_and_samples(make_task: MakeTask) -> None:
    task = make_task(data__context_length=64)
    model = task.build_model()
    assert model.config.vocab_size == 304  # 300, and rows up to a multiple of 8
    assert model.generation_config.max_new_tokens == 32
    validation = task.validate(model)
    scores, outputs = task.evaluate(model, "validation")
    assert outputs == []
    assert validation == {"loss": scores["loss"]["nats_per_token"], "bits_per_byte": scores["bits_per_byte"]}
    assert scores["loss"]["tokens"] == len(task.held_out["validation"].ids) - 1
    scores, outputs = task.evaluate(model, "test")
    assert (scores["task"], scores["split"]) == ("text-generation", "test")
    assert outputs == task.evaluate(model, "test")[1]  # the same at every call, though sampled
    prompts = [prompt for prompt, _ in task.samples(outputs)]
    assert prompts == ["A dog sleeps. Ein Hund schläft.\n", "A dog runs away. Ein Hund läuft weg.\n"]
    assert [(split.name, split.examples) for split in task.splits()] == [("train", 1), ("validation", 1), ("test", 1)]


def test_a_long_first_line_is_cut_to_a_prompt_that_leaves_room(make_task: MakeTask, tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.txt").write_text("a dog and a cat " * 40 + "\n")
    positions = {"model__position_embedding_type": "learned", "model__max_position_embeddings": 16}
    task = make_task(data__dataset=tmp_path, **positions)
    _, outputs = task.evaluate(task.build_model(), "test")
    [(prompt, _)] = task.samples(outputs)
    assert 0 < len(task.tokenizer(prompt).input_ids) <= 8
    assert ("a dog and a cat " * 40).startswith(prompt)
