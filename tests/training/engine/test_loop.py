import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from paperformer import PaperformerForCausalLM
from paperformer.training.data.batches.token_budget import pad
from paperformer.training.engine.devices.precision import Precision
from paperformer.training.engine.schedules import learning_rate
from paperformer.training.recipe.data import TextData
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.reporting import recorder
from paperformer.training.run_folder import RunFolder
from paperformer.training.tasks.translation import TranslationScoring

from .conftest import Task, Train, figures

Recipes = Callable[..., Recipe[TextData]]


ROWS = [[1, 5, 6, 7, 8, 9, 10, 11], [1, 20], [1, 30, 31], [1, 40, 41, 42], [1, 50], [1, 60, 61], [1, 70], [1, 80, 81]]


def batches_of(groups: list[list[list[int]]], fresh: list[Any]) -> Callable[[Task], None]:
    """Makes a task's batches of these rows, a group a batch; of sentence pairs the other side is the row reversed."""

    def change(task: Task) -> None:
        is_translation = isinstance(task.scoring, TranslationScoring)

        def collate(rows: list[list[int]]) -> dict[str, torch.Tensor]:
            sources = [row[::-1] for row in rows] if is_translation else rows
            return {
                "input_ids": pad(sources, task.build_model().config.pad_token_id),
                "attention_mask": (pad(sources, -1) >= 0).long(),
                "labels": pad(rows, -100),
            }

        task.batches.pools = lambda epoch, first: iter([groups])  # type: ignore[method-assign, assignment, return-value]
        task.batches.collate = collate  # type: ignore[method-assign, assignment]
        task.batches.longest_batch = lambda: collate(ROWS)  # type: ignore[method-assign]
        torch.manual_seed(1)
        fresh.append(task.build_model())

    return change


def losses_and_norms(folder: RunFolder) -> list[float]:
    return [record[name] for record in folder.metrics() if "loss" in record for name in ("loss", "gradient_norm")]


@pytest.mark.parametrize("family", ["lm", "seq2seq"])
def test_however_a_step_is_cut_it_is_the_same_step(
    lm_recipe: Recipes,
    seq2seq_recipe: Recipes,
    train: Train,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
) -> None:
    """One batch, four accumulated, or one cut into four, of unequal lengths: a mean of means would be another."""
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    options = {
        "optimization__max_steps": 3,
        "optimization__adam_epsilon": 1e-5,  # rounding of gradients that should be 0 must not become a step
        "model__dropout": 0,
        "model__label_smoothing": 0.1,
        "evaluation__validation_samples": 0,
        "overwrite": True,
    }
    recipe = lm_recipe if family == "lm" else seq2seq_recipe
    fresh: list[Any] = []
    whole, folder = train(recipe(**options), change=batches_of([ROWS], fresh))
    expected = losses_and_norms(folder)
    start = dict(fresh[0].state_dict())
    quarters = [ROWS[:1], ROWS[1:4], ROWS[4:5], ROWS[5:]]
    for groups, cut in ((quarters, {"accumulation_steps": 4}), ([ROWS], {"split_batches": 4})):
        changes = {f"optimization__{name}": value for name, value in cut.items()}
        other, folder = train(recipe(**options, **changes), change=batches_of(groups, fresh))
        assert losses_and_norms(folder) == pytest.approx(expected, rel=1e-5)
        found, reference = other.model.state_dict(), whole.model.state_dict()
        moved = math.hypot(*(float((reference[name] - start[name]).norm()) for name in start))
        difference = math.hypot(*(float((reference[name] - found[name]).norm()) for name in start))
        assert moved > 0.01
        assert difference < 1e-5 * moved

    # The first step's loss and gradient, computed row by row without the engine.
    model, total = fresh[0].train(), 0.0
    count = sum(len(row) - (family == "lm") for row in ROWS)
    for row in ROWS:
        source = torch.tensor([row[::-1] if family == "seq2seq" else row])
        loss = model(source, labels=torch.tensor([row])).loss * (len(row) - (family == "lm")) / count
        loss.backward()
        total += float(loss.detach())
    squares = [(p.grad.double() ** 2).sum() for p in model.parameters() if p.grad is not None]
    assert expected[:2] == pytest.approx([total, math.sqrt(sum(squares))], rel=1e-5)


def test_the_learning_rate_of_each_step_is_the_schedule_s(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    recipe = lm_recipe(optimization__accumulation_steps=2, optimization__schedule="cosine")
    _, folder = train(recipe)
    logged = [record["learning_rate"] for record in folder.metrics() if "learning_rate" in record]
    assert logged == [learning_rate(recipe.optimization, step, 16) for step in range(1, 7)]


def test_the_learning_rate_is_the_optimizer_s(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam's first update of each weight is the learning rate, up to the sign."""
    steps: list[float] = []
    step = Precision.step

    def measure(self: Precision, optimizers: Any) -> bool:
        (optimizer,) = optimizers
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        before = [p.detach().clone() for p in parameters]
        done = step(self, optimizers)
        steps.append(max(float((p.detach() - old).abs().max()) for p, old in zip(parameters, before, strict=True)))
        return done

    monkeypatch.setattr(Precision, "step", measure)
    train(lm_recipe(optimization__warmup_steps=8, optimization__adam_epsilon=1e-12))
    assert steps[0] == pytest.approx(0.01 / 8, rel=1e-3)


def test_the_moving_average_is_what_is_validated_and_chosen(lm_recipe: Recipes, train: Train, tmp_path: Path) -> None:
    _, plain = train(lm_recipe(output_dir=tmp_path / "plain"))
    fitted, folder = train(lm_recipe(optimization__ema_decay=0.9))
    last = dict(folder.checkpoints())[6]
    weights, average = load_file(last / "model.safetensors"), load_file(last / "ema.safetensors")
    expected = load_file(dict(plain.checkpoints())[6] / "model.safetensors")
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():  # the average does not change the training
        assert torch.equal(weights[name], tensor), name
    assert any(not torch.equal(weights[name], average[name]) for name in weights)
    for name, tensor in average.items():
        assert torch.equal(fitted.model.state_dict()[name], tensor), name


def test_r_drop_is_another_loss(lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    first = {}
    for alpha in (0.0, 5.0):
        _, folder = train(lm_recipe(optimization__r_drop=alpha, model__dropout=0.3, overwrite=True))
        first[alpha] = losses_and_norms(folder)[0]
    assert first[0.0] < first[5.0] < first[0.0] + 5.0


def test_validation_changes_nothing_of_training(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples are drawn in validation; what dropout draws afterwards is the same."""
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    found = []
    for every in (2, 6):
        options = {"evaluation__every_steps": every, "evaluation__validation_samples": 2, "overwrite": True}
        _, folder = train(lm_recipe(**options, model__dropout=0.3))
        found.append(losses_and_norms(folder))
    assert found[0] == found[1]
    assert [len(record["samples"]) for record in folder.samples()] == [2]


def test_bfloat16_learns_as_float32_does_and_keeps_float32_weights(lm_recipe: Recipes, train: Train) -> None:
    options = {"optimization__max_steps": 30, "evaluation__every_steps": 30, "overwrite": True}
    losses = {}
    for precision in ("no", "bf16"):
        fitted, folder = train(lm_recipe(**options, optimization__mixed_precision=precision))
        losses[precision] = next(record["validation"]["loss"] for record in folder.metrics() if "validation" in record)
        assert {parameter.dtype for parameter in fitted.model.parameters()} == {torch.float32}
        ids = torch.tensor([[1, 2, 3]])
        assert fitted.model(input_ids=ids).logits.dtype == torch.float32
        assert isinstance(fitted.model(input_ids=ids, return_dict=False), tuple)  # the class's own forward, whole
        with torch.no_grad():  # not under autocast any more: exactly what a user gets
            expected = PaperformerForCausalLM(fitted.model.config).eval()
            expected.load_state_dict(fitted.model.state_dict())
            torch.testing.assert_close(fitted.model.eval()(input_ids=ids).logits, expected(input_ids=ids).logits)
    assert losses["no"] < 5.2
    assert losses["bf16"] != losses["no"]
    assert losses["bf16"] == pytest.approx(losses["no"], rel=0.01)


def test_gradient_checkpointing_computes_blocks_twice_and_changes_no_figure(
    lm_recipe: Recipes, train: Train, tmp_path: Path
) -> None:
    found, blocks_per_pass = [], []
    for recompute in (False, True):
        passes: list[str] = []

        def watch(task: Task, passes: list[str] = passes) -> None:
            build = task.build_model

            def build_watched() -> Any:
                model: Any = build()
                for name, module in (("whole", model.model.embed_tokens), ("block", model.model.layers[0].mlp)):
                    module.register_forward_hook(lambda *_, name=name: passes.append(name) if model.training else None)
                return model

            task.build_model = build_watched  # type: ignore[method-assign]

        recipe = lm_recipe(
            model__dropout=0.2,
            optimization__max_steps=4,
            optimization__gradient_checkpointing=recompute,
            output_dir=tmp_path / str(recompute),
        )
        _, folder = train(recipe, change=watch)
        found.append(figures(folder))
        blocks_per_pass.append(passes.count("block") / passes.count("whole"))
    assert found[0] == found[1]
    assert blocks_per_pass == [1, 2]


def test_a_step_without_labels_changes_nothing_and_is_no_fault(lm_recipe: Recipes, train: Train) -> None:
    """It may come of masking few tokens: their loss is 0, not 0 / 0."""

    def change(task: Task) -> None:
        collate = task.batches.collate

        def without_labels(batch: Any) -> Any:
            tensors = collate(batch)
            return tensors | {"labels": torch.full_like(tensors["labels"], -100)}

        task.batches.collate = without_labels

    _, folder = train(lm_recipe(guard__non_finite="stop"), change=change)
    assert [record for record in folder.metrics() if "event" in record] == []
