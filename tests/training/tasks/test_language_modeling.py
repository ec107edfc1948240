from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from paperformer.tokenization import train_tokenizer
from paperformer.training.console.input_error import InputError
from paperformer.training.data.splits import text_splits
from paperformer.training.data.tokenizers import Tokenizers
from paperformer.training.evaluation.evaluation_file import fields_of
from paperformer.training.recipe.data import TextData
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.tasks.language_modeling import language_modeling_task
from paperformer.training.tasks.protocols import Task

MakeTask = Callable[..., Task]


@pytest.fixture
def make_task(lm_recipe: Callable[..., Recipe[TextData]], text_folder: Path) -> MakeTask:
    tokenizer = train_tokenizer((text_folder / "train.txt").open(), 300, append_eos=False)

    def make(**changes: object) -> Task:
        recipe = lm_recipe(**changes)
        return language_modeling_task(recipe, text_splits(recipe), Tokenizers(tokenizer, tokenizer))

    return make


def evaluated(task: Task, model: Any, split: str) -> tuple[dict[str, Any], list[str]]:
    """Scores as evaluation.json has them, and outputs."""
    evaluation = task.scoring.evaluate(model, split)
    return fields_of(evaluation.scores), list(evaluation.outputs)


def epoch_of(task: Task, number: int = 0) -> list[Any]:
    return list(chain.from_iterable(task.batches.pools(number, 0)))


def test_documents_lie_between_marks_and_decode_to_themselves(make_task: MakeTask, text_folder: Path) -> None:
    task = make_task()
    for split, store in task.scoring.held_out.items():
        [[ids]] = [store.row(index) for index in range(len(store))]
        assert (ids[0], ids[-1]) == (task.scoring.tokenizer.bos_token_id, task.scoring.tokenizer.eos_token_id)
        assert task.scoring.tokenizer.decode(ids[1:-1].tolist()) == (text_folder / f"{split}.txt").read_text("utf-8")


def test_batches_hold_as_many_contexts_as_the_budget_allows(make_task: MakeTask) -> None:
    task = make_task()
    batches = [task.batches.collate(planned) for planned in epoch_of(task)]
    assert {len(batch["input_ids"]) for batch in batches[:-1]} == {4}  # 64 tokens a batch, 16 a context
    assert max(batch["input_ids"].shape[1] for batch in batches) == 16
    labels = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
    assert labels == task.batches.facts().tokens - 1  # all but the first are predicted
    assert task.batches.describe() == f"an epoch: {len(batches)} batches of 4 x 16 tokens"


@pytest.mark.parametrize("streaming", ["false", "true"])
def test_documents_can_be_kept_apart(make_task: MakeTask, streaming: str) -> None:
    task = make_task(data__separate_documents="true", data__documents="each", data__streaming=streaming)
    batch = task.batches.collate(epoch_of(task)[0])
    begins = batch["input_ids"] == task.scoring.tokenizer.bos_token_id
    assert begins.any()
    assert (batch["position_ids"][begins] == 0).all()
    assert (batch["labels"][begins] == -100).all()


def test_a_stream_has_the_same_tokens(make_task: MakeTask) -> None:
    def labels(task: Task) -> int:
        return sum(int((task.batches.collate(planned)["labels"][:, 1:] != -100).sum()) for planned in epoch_of(task))

    stream = make_task(data__streaming="true")
    assert labels(stream) == labels(make_task())
    assert stream.batches.facts().examples is None
    assert stream.batches.describe() == "batches of 4 x 16 tokens, made while training"


def test_text_of_one_context_trains_and_a_shorter_one_does_not(make_task: MakeTask) -> None:
    length = make_task().batches.facts().tokens
    changes = {"optimization__tokens_per_batch": 4096, "model__max_position_embeddings": 4096}
    assert epoch_of(make_task(**changes, data__context_length=length))
    with pytest.raises(InputError, match=rf"data.train has {length:,} tokens; it needs at least data.context_length"):
        make_task(**changes, data__context_length=length + 1)


def test_scores_and_samples(make_task: MakeTask) -> None:
    task = make_task(data__context_length=64)
    model = task.build_model()
    assert model.config.vocab_size == 304  # 300, and rows up to a multiple of 8
    assert model.generation_config.max_new_tokens == 32
    validation = task.scoring.validate(model)
    scores, outputs = evaluated(task, model, "validation")
    assert outputs == []
    assert {score.metric.name: score.value for score in validation} == {
        "loss": scores["loss"]["nats_per_token"],
        "bits_per_byte": scores["bits_per_byte"],
    }
    assert scores["loss"]["tokens"] == len(task.scoring.held_out["validation"].ids) - 1
    scores, outputs = evaluated(task, model, "test")
    assert outputs == evaluated(task, model, "test")[1]  # the same at every call, though sampled
    prompts = [prompt for prompt, _ in task.scoring.samples(outputs)]
    assert prompts == ["A dog sleeps. Ein Hund schläft.\n", "A dog runs away. Ein Hund läuft weg.\n"]
    assert [(split.name, split.examples) for split in [task.batches.facts(), *task.scoring.facts()]] == [
        ("train", 1),
        ("validation", 1),
        ("test", 1),
    ]


def test_a_long_first_line_is_cut_to_a_prompt_that_leaves_room(make_task: MakeTask, tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.txt").write_text("a dog and a cat " * 40 + "\n")
    positions = {"model__position_embedding_type": "learned", "model__max_position_embeddings": 16}
    task = make_task(data__dataset=tmp_path, **positions)
    _, outputs = evaluated(task, task.build_model(), "test")
    [(prompt, _)] = task.scoring.samples(outputs)
    assert 0 < len(task.scoring.tokenizer(prompt).input_ids) <= 8
    assert ("a dog and a cat " * 40).startswith(prompt)
