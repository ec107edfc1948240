import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from paperformer import PaperformerForCausalLM
from paperformer.tokenization import train_tokenizer
from paperformer.training.corpora import text_splits
from paperformer.training.data.batch_stream import BatchStream
from paperformer.training.data.batching import pad
from paperformer.training.engine import loop as engine
from paperformer.training.engine.loop import (
    FittedModel,
    NonFiniteGradientError,
    TrainingStopped,
    fit,
    learning_rate_schedule,
)
from paperformer.training.input_error import InputError
from paperformer.training.language_modeling import LanguageModelingTask
from paperformer.training.options.data import TextData
from paperformer.training.options.optimization import Optimization
from paperformer.training.recipe import Recipe
from paperformer.training.run_folder import RunFolder
from paperformer.training.run_tokenizers import Tokenizers

Recipes = Callable[..., Recipe[TextData]]


@pytest.fixture
def make_task(lm_recipe: Recipes) -> Callable[[Recipe[TextData]], LanguageModelingTask]:
    tokenizer = train_tokenizer(text_splits(lm_recipe()).train.texts("text"), 300, append_eos=False)
    return lambda recipe: LanguageModelingTask(recipe, text_splits(recipe), Tokenizers(tokenizer, tokenizer))


@pytest.fixture
def train(
    make_task: Callable[[Recipe[TextData]], LanguageModelingTask],
) -> Callable[..., tuple[FittedModel, RunFolder]]:
    """Trains a tiny language model by a recipe; `change` may alter the task before."""

    def run(
        recipe: Recipe[TextData], change: Callable[[LanguageModelingTask], Any] = lambda task: None
    ) -> tuple[FittedModel, RunFolder]:
        task = make_task(recipe)
        change(task)
        folder = RunFolder(recipe.run)
        folder.create(recipe.yaml)
        return fit(task, recipe, folder, Accelerator(mixed_precision=recipe.optimization.mixed_precision)), folder

    return run


Train = Callable[..., tuple[FittedModel, RunFolder]]


def figures(folder: RunFolder) -> list[dict[str, Any]]:
    """metrics.jsonl without what the clock says."""
    return [
        {name: value for name, value in record.items() if name not in ("seconds", "tokens_per_second")}
        for record in folder.metrics()
        if "hardware" not in record  # a line for each start, however often the run was interrupted
    ]


def signal_at_batch(number: int, which: signal.Signals) -> Callable[[LanguageModelingTask], None]:
    """Makes a task send this process a signal while its n-th batch is made."""

    def change(task: LanguageModelingTask) -> None:
        collate, calls = task.collate, iter(range(1, 1000))

        def collate_and_signal(batch: Any) -> Any:
            if next(calls) == number:
                os.kill(os.getpid(), which)
            return collate(batch)

        task.collate = collate_and_signal  # type: ignore[method-assign]

    return change


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize(("stop_at", "which"), [(3, signal.SIGINT), (6, signal.SIGTERM)])
def test_resumed_is_uninterrupted_bit_for_bit(
    lm_recipe: Recipes,
    train: Train,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    precision: str,
    stop_at: int,
    which: signal.Signals,
) -> None:
    monkeypatch.setattr(engine, "LOG_EVERY", 4)  # the run stops in the middle of a window of the log
    options = {
        "optimization__max_steps": 10,
        "optimization__accumulation_steps": 2,
        "optimization__mixed_precision": precision,
        "optimization__tokens_per_batch": 160,
        "evaluation__every_steps": 5,
        "evaluation__average_checkpoints": 2,
        "model__dropout": 0.3,
    }
    whole, whole_folder = train(lm_recipe(**options, output_dir=tmp_path / "whole"))
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(TrainingStopped, match=f"stopped after step {stop_at}; its state is saved"):
        train(lm_recipe(**options), change=signal_at_batch(2 * stop_at, which))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    torch.manual_seed(123)  # nothing may depend on what this process has drawn
    resumed, folder = train(lm_recipe(**options, resume=True))

    assert [record["step"] for record in figures(folder)] == [4, 5, 8, 10, 10]
    assert figures(folder) == figures(whole_folder)
    assert resumed.weights == whole.weights
    expected = whole.model.state_dict()
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    last, whole_last = folder.checkpoints()[-1][1], whole_folder.checkpoints()[-1][1]
    for name, tensor in load_file(last / "model.safetensors").items():
        assert torch.equal(tensor, load_file(whole_last / "model.safetensors")[name]), name


@pytest.mark.parametrize(
    "data",
    [
        {"data__workers": 2},
        {"data__streaming": "true", "data__shuffle_buffer": 7, "data__documents": "each"},
        {"data__streaming": "true", "data__shuffle_buffer": 7, "data__documents": "each", "data__workers": 1},
    ],
    ids=["workers", "stream", "stream and worker"],
)
def test_the_data_go_on_where_they_stopped(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: dict[str, Any]
) -> None:
    monkeypatch.setattr(engine, "LOG_EVERY", 1)
    workers: list[int] = []

    def stream(*arguments: Any) -> BatchStream:
        workers.append(arguments[-1])
        return BatchStream(*arguments)

    monkeypatch.setattr(engine, "BatchStream", stream)
    options = data | {"optimization__max_steps": 8, "evaluation__every_steps": 3, "model__dropout": 0.3}
    _, whole = train(lm_recipe(**options, output_dir=tmp_path / "whole"))

    def stop_at_first_validation(task: LanguageModelingTask) -> None:
        validate = task.validate

        def validate_and_stop(model: Any) -> dict[str, float]:
            os.kill(os.getpid(), signal.SIGINT)
            return validate(model)

        task.validate = validate_and_stop  # type: ignore[method-assign]

    with pytest.raises(TrainingStopped, match="stopped after step 3"):
        train(lm_recipe(**options), change=stop_at_first_validation)
    _, folder = train(lm_recipe(**options, resume=True))
    assert figures(folder) == figures(whole)
    assert workers == [data.get("data__workers", 0)] * 3
    if "data__streaming" not in data:  # workers change nothing at all
        _, without = train(lm_recipe(**options | {"data__workers": 0}, output_dir=tmp_path / "without"))
        assert figures(without) == figures(whole)


def test_a_second_signal_ends_it_at_once(lm_recipe: Recipes, train: Train) -> None:
    def change(task: LanguageModelingTask) -> None:
        signal_at_batch(2, signal.SIGINT)(task)
        signal_at_batch(2, signal.SIGINT)(task)

    with pytest.raises(KeyboardInterrupt):
        train(lm_recipe(), change=change)


def test_a_run_that_crashed_before_its_first_checkpoint_is_resumed_from_the_start(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "LOG_EVERY", 1)
    _, whole = train(lm_recipe(output_dir=tmp_path / "whole"))
    recipe = lm_recipe(resume=True)
    folder = RunFolder(recipe.run)
    folder.create(recipe.yaml)
    folder.metrics_path.write_text('{"step": 1, "loss": 9}\n{"step": 2, "lo')
    _, folder = train(recipe)
    assert figures(folder) == figures(whole)


def test_a_run_that_crashed_after_a_checkpoint_repeats_what_was_lost(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "LOG_EVERY", 1)
    _, whole = train(lm_recipe(output_dir=tmp_path / "whole"))

    def crash(task: LanguageModelingTask) -> None:
        batches = iter(range(1, 100))
        collate = task.collate
        # The fifth batch: the checkpoint is of step 3, the log has step 4 as well.
        task.collate = lambda batch: collate(batch) if next(batches) < 5 else 1 / 0  # type: ignore

    with pytest.raises(ZeroDivisionError):
        train(lm_recipe(), change=crash)
    _, folder = train(lm_recipe(resume=True))
    assert figures(folder) == figures(whole)


def test_accumulated_batches_are_one_large_batch(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of unequal lengths: a mean of the batches' means would be something else."""
    monkeypatch.setattr(engine, "LOG_EVERY", 1)
    rows = [[1, 5, 6, 7, 8, 9, 10, 11], [1, 20], [1, 30, 31], [1, 40, 41, 42]]
    fresh_models: list[PaperformerForCausalLM] = []

    def batches(*groups: list[list[int]]) -> Callable[[LanguageModelingTask], None]:
        def change(task: LanguageModelingTask) -> None:
            task.pools = lambda epoch, first: iter([list(groups)])  # type: ignore[method-assign, assignment, return-value]
            task.collate = lambda batch: {  # type: ignore[method-assign, assignment]
                "input_ids": pad(batch, 0),
                "attention_mask": (pad(batch, -1) >= 0).long(),
                "labels": pad(batch, -100),
            }
            torch.manual_seed(1)
            fresh_models.append(task.build_model().eval())

        return change

    def losses_and_norms(folder: RunFolder) -> list[float]:
        return [record[name] for record in folder.metrics() if "loss" in record for name in ("loss", "gradient_norm")]

    options = {"optimization__max_steps": 3, "model__dropout": 0, "optimization__warmup_steps": 0, "overwrite": True}
    together, folder = train(lm_recipe(**options), change=batches(rows))
    expected = losses_and_norms(folder)
    apart, folder = train(lm_recipe(**options, optimization__accumulation_steps=2), change=batches(rows[:1], rows[1:]))
    assert losses_and_norms(folder) == pytest.approx(expected, rel=1e-4)
    for name, tensor in apart.model.state_dict().items():
        torch.testing.assert_close(tensor, together.model.state_dict()[name], rtol=1e-4, atol=1e-5)

    with torch.no_grad():  # the first step's loss and gradient, computed row by row
        nats = [fresh_models[0](torch.tensor([row]), labels=torch.tensor([row])).loss * (len(row) - 1) for row in rows]
    assert expected[0] == pytest.approx(float(sum(nats)) / sum(len(row) - 1 for row in rows), rel=1e-5)
    for row in rows:
        loss = fresh_models[0](torch.tensor([row]), labels=torch.tensor([row])).loss * (len(row) - 1)
        (loss / sum(len(row) - 1 for row in rows)).backward()
    squares = [(p.grad.double() ** 2).sum() for p in fresh_models[0].parameters() if p.grad is not None]
    assert expected[1] == pytest.approx(math.sqrt(sum(squares)), rel=1e-4)


def test_the_gradient_is_clipped() -> None:
    model = torch.nn.Linear(3, 1, bias=False)
    model.weight.grad = torch.tensor([[0.0, 3.0, 4.0]])
    assert engine._clip_gradient(model, 10.0).total == 5.0
    assert model.weight.grad.tolist() == [[0.0, 3.0, 4.0]]
    assert engine._clip_gradient(model, 0.5).total == 5.0
    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.0, 0.3, 0.4]]))


def test_norms_are_of_the_whole_gradient_and_of_each_layer_and_are_logged(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LOG_EVERY", 1)
    expected: list[tuple[dict[str, float], float, float]] = []
    clip = engine._clip_gradient

    def norm(gradients: list[torch.Tensor]) -> float:
        return math.sqrt(sum(float((gradient.double() ** 2).sum()) for gradient in gradients))

    def record(model: PaperformerForCausalLM, max_norm: float) -> engine.GradientNorms:
        modules = {"embed_tokens": model.model.embed_tokens, "layers.0": model.model.layers[0]}
        modules |= {"layers.1": model.model.layers[1], "norm": model.model.norm}
        by_layer = {name: norm([p.grad for p in module.parameters()]) for name, module in modules.items()}
        assert sum(len(list(module.parameters())) for module in modules.values()) == len(list(model.parameters()))
        norms = clip(model, max_norm)  # scales the gradient
        expected.append((by_layer, norms.total, max_norm))
        return norms

    monkeypatch.setattr(engine, "_clip_gradient", record)
    recipe = lm_recipe(optimization__max_grad_norm=0.25, optimization__accumulation_steps=2, model__num_hidden_layers=2)
    _, folder = train(recipe)
    lines = [line for line in folder.metrics() if "loss" in line]
    for (by_layer, total, max_norm), line in zip(expected, lines, strict=True):
        assert line["gradient_norm_by_layer"] == pytest.approx(by_layer, rel=1e-5)
        assert total == line["gradient_norm"] == pytest.approx(math.hypot(*by_layer.values()), rel=1e-5)
        assert total > max_norm == 0.25


def test_layers_of_both_stacks_have_names_of_their_own() -> None:
    names = ["model.encoder.embed_tokens.weight", "model.encoder.layers.1.mlp.up.weight", "model.encoder.norm.bias"]
    names += ["model.encoder.layers.1.mlp.up.bias", "model.decoder.layers.1.mlp.up.bias", "lm_head.weight"]
    norms = engine.GradientNorms(8.0, names, torch.tensor([1.0, 3.0, 2.0, 4.0, 6.0, 7.0]))
    assert norms.by_layer() == {
        "encoder.embed_tokens": 1.0,
        "encoder.layers.1": 5.0,
        "encoder.norm": 2.0,
        "decoder.layers.1": 6.0,
        "lm_head": 7.0,
    }


def test_the_total_is_that_of_torch_bit_for_bit() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(n, n + 3) for n in (7, 10, 13)))
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    expected = float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
    assert engine._clip_gradient(model, 1.0).total == expected


def rates(**options: Any) -> list[float]:
    """The learning rate of each step, counted from 1."""
    choice = Optimization(**options)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=choice.learning_rate)
    schedule, found = learning_rate_schedule(optimizer, choice), []
    for _ in range(choice.max_steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


WARMUP, STEPS, PEAK = 10, 100, 0.01
SCHEDULES: dict[str, Callable[[int], float]] = {
    # Vaswani et al. 2017, equation 3, scaled to its peak: min(step^-0.5, step * warmup^-1.5).
    "inverse_sqrt": lambda step: math.sqrt(WARMUP) * min(step**-0.5, step * WARMUP**-1.5) if step else 0.0,
    # Loshchilov and Hutter 2016, equation 5, with one period and a minimum of 0.
    "cosine": lambda step: 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))),
    "linear": lambda step: (STEPS - step) / (STEPS - WARMUP),
    "constant": lambda step: 1.0,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_learning_rates_are_the_papers(schedule: str) -> None:
    found = rates(schedule=schedule, warmup_steps=WARMUP, max_steps=STEPS, learning_rate=PEAK)
    for done, rate in enumerate(found):  # done: steps before this one
        factor = done / WARMUP if done < WARMUP else SCHEDULES[schedule](done)
        assert rate == pytest.approx(PEAK * factor, rel=1e-6, abs=1e-12), done
    assert max(found) == pytest.approx(PEAK)
    assert rates(schedule=schedule, warmup_steps=0, max_steps=2, learning_rate=PEAK)[0] == pytest.approx(PEAK)


POISONED = "model.layers.0.self_attn.o_proj.weight"


def test_the_schedule_advances_once_a_step(lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOG_EVERY", 1)
    _, folder = train(lm_recipe(optimization__accumulation_steps=2))
    logged = [record["learning_rate"] for record in folder.metrics() if "loss" in record]
    assert logged == rates(schedule="inverse_sqrt", warmup_steps=4, max_steps=7, learning_rate=0.01)[1:]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stops_before_the_step(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    models: list[PaperformerForCausalLM] = []

    def poison(task: LanguageModelingTask) -> None:
        build = task.build_model

        def build_poisoned() -> PaperformerForCausalLM:
            model = build()
            calls = iter(range(100))
            weight = model.get_parameter(POISONED)
            weight.register_hook(lambda grad: grad * value if next(calls) == 2 else grad)
            models.append(model)
            return model

        task.build_model = build_poisoned  # type: ignore[method-assign]

    seen: list[dict[str, torch.Tensor]] = []
    clip = engine._clip_gradient

    def remember(model: torch.nn.Module, max_norm: float) -> engine.GradientNorms:
        seen.append({name: p.detach().clone() for name, p in model.named_parameters()})
        return clip(model, max_norm)

    monkeypatch.setattr(engine, "_clip_gradient", remember)
    with pytest.raises(NonFiniteGradientError, match=f"gradient of 1 parameters is not finite, first {POISONED}; "):
        train(lm_recipe(), change=poison)
    assert len(seen) == 3
    for name, parameter in models[0].named_parameters():
        assert torch.equal(parameter, seen[-1][name]), name


def test_only_matrices_decay(lm_recipe: Recipes, make_task: Callable[[Recipe[TextData]], LanguageModelingTask]) -> None:
    recipe = lm_recipe(optimization__weight_decay=0.1, model__use_bias=True)
    model = make_task(recipe).build_model()
    optimizer = engine._adamw(model, recipe.optimization, fused=False)
    names = {parameter: name for name, parameter in model.named_parameters()}
    decay = {names[p]: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decay.keys() == set(names.values())
    for name, parameter in model.named_parameters():
        is_vector = "norm" in name or name.endswith("bias")
        assert is_vector == (parameter.dim() == 1)
        assert decay[name] == (0.0 if is_vector else 0.1), name
    assert sum(value == 0.1 for value in decay.values()) > 5


def test_bfloat16_learns_as_float32_does_and_keeps_float32_weights(lm_recipe: Recipes, train: Train) -> None:
    options = {"optimization__max_steps": 30, "evaluation__every_steps": 30, "overwrite": True}
    losses = {}
    for precision in ("no", "bf16"):
        fitted, folder = train(lm_recipe(**options, optimization__mixed_precision=precision))
        losses[precision] = next(record["validation"]["loss"] for record in folder.metrics() if "validation" in record)
        assert {parameter.dtype for parameter in fitted.model.parameters()} == {torch.float32}
        AcceleratorState._reset_state(reset_partial_state=True)
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


def validation_scores(*scores: float, select_by: str = "loss") -> Callable[[LanguageModelingTask], None]:
    """Makes a task return these validation scores, one after the other."""
    following = iter(scores)

    def change(task: LanguageModelingTask) -> None:
        task.validate = lambda model: {"loss": 0.0} | {select_by: next(following)}  # type: ignore[method-assign]

    return change


@pytest.mark.parametrize(
    ("scores", "chosen"), [((3.0, 1.0, 2.0), 4), ((3.0, 2.0, 1.0), 6), ((1.0, 1.0, 2.0), 2)], ids=str
)
def test_the_best_checkpoint_is_chosen(
    lm_recipe: Recipes, train: Train, scores: tuple[float, ...], chosen: int
) -> None:
    fitted, folder = train(lm_recipe(evaluation__every_steps=2), change=validation_scores(*scores))
    kept = dict(folder.checkpoints())
    assert kept.keys() == {chosen, 6}  # the best and the last, and no other
    assert fitted.weights == f"step {chosen}"
    weights = load_file(kept[chosen] / "model.safetensors")
    for name, tensor in weights.items():
        assert torch.equal(fitted.model.state_dict()[name], tensor), name
    record = folder.metrics()[-1]
    assert (record["chosen"], record["select_by"]) == (f"step {chosen}", "loss")


def test_a_score_that_should_be_high(lm_recipe: Recipes, train: Train) -> None:
    recipe = lm_recipe(evaluation__every_steps=2)
    recipe.evaluation.select_by = "bleu"
    fitted, _ = train(recipe, change=validation_scores(3.0, 9.0, 2.0, select_by="bleu"))
    assert fitted.weights == "step 4"


@pytest.mark.parametrize(("mean_score", "is_chosen"), [(0.5, True), (9.0, False)])
def test_the_mean_of_the_last_checkpoints(lm_recipe: Recipes, train: Train, mean_score: float, is_chosen: bool) -> None:
    recipe = lm_recipe(evaluation__every_steps=1, evaluation__average_checkpoints=3)
    fitted, folder = train(recipe, change=validation_scores(1.0, 5.0, 4.0, 3.0, 2.0, 2.0, mean_score))
    kept = dict(folder.checkpoints())
    assert kept.keys() == {1, 4, 5, 6}  # the best and the last three
    assert fitted.weights == ("mean of steps 4, 5, 6" if is_chosen else "step 1")
    sources = [load_file(kept[step] / "model.safetensors") for step in ((4, 5, 6) if is_chosen else (1,))]
    for name in sources[0]:
        mean = torch.stack([source[name].double() for source in sources]).mean(0)
        torch.testing.assert_close(fitted.model.state_dict()[name].double(), mean, rtol=1e-6, atol=1e-8)
    assert fitted.model.lm_head.weight is fitted.model.model.embed_tokens.weight


def test_gradient_checkpointing_changes_no_figure(lm_recipe: Recipes, train: Train, tmp_path: Path) -> None:
    options = {"model__dropout": 0.2, "optimization__max_steps": 4}
    plain, folder = train(lm_recipe(**options))
    saving, other = train(lm_recipe(**options, optimization__gradient_checkpointing=True, output_dir=tmp_path / "b"))
    assert saving.model.is_gradient_checkpointing
    assert not plain.model.is_gradient_checkpointing
    assert figures(folder) == figures(other)


@pytest.mark.parametrize("damage", ["another width", "half a file", "a missing file"])
def test_a_checkpoint_that_cannot_be_resumed(lm_recipe: Recipes, train: Train, damage: str) -> None:
    _, folder = train(lm_recipe())
    path = folder.checkpoints()[-1][1]
    weights = path / "model.safetensors"
    recipe = lm_recipe(resume=True, model__hidden_size=32 if damage == "another width" else 16)
    if damage == "half a file":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "a missing file":
        (path / "optimizer.bin").unlink()
    with pytest.raises(InputError, match=f"{path} is a checkpoint of another model, or damaged: .{{10}}"):
        train(recipe)


def test_fewer_steps_than_the_run_has_made(lm_recipe: Recipes, train: Train) -> None:
    train(lm_recipe())
    with pytest.raises(InputError, match=r"optimization.max_steps is 3; it must be greater, as the run .* at step 6"):
        train(lm_recipe(resume=True, optimization__max_steps=3))


def test_a_finished_run_is_resumed_to_its_result(lm_recipe: Recipes, train: Train) -> None:
    fitted, _ = train(lm_recipe())
    again, _ = train(lm_recipe(resume=True))
    assert again.weights == fitted.weights
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, fitted.model.state_dict()[name]), name


def test_a_full_disk_leaves_the_last_checkpoint(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Accelerator.save_state

    def fill_the_disk(self: Accelerator, path: str) -> None:
        save(self, path)
        if "step-6" in path:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Accelerator, "save_state", fill_the_disk)
    recipe = lm_recipe()
    with pytest.raises(InputError, match=r"cannot write .*step-6: No space left on device"):
        train(recipe)
    assert [path.name for path in RunFolder(recipe.run).checkpoints_path.iterdir()] == ["step-3"]
