import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from paperformer.training.console.input_error import InputError
from paperformer.training.data.batches.batch_stream import BatchStream
from paperformer.training.engine import loop, training_state
from paperformer.training.engine.checkpoints import snapshot as checkpoints
from paperformer.training.engine.checkpoints.snapshot import find_damage
from paperformer.training.engine.loop import FittedModel
from paperformer.training.engine.stop_request import TrainingStopped
from paperformer.training.recipe.data import TextData
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.reporting import recorder
from paperformer.training.run_folder import RunFolder

from .conftest import Task, Train, figures, signal_at_batch

Recipes = Callable[..., Recipe[TextData]]


@pytest.fixture(scope="module")
def whole_runs() -> dict[str, tuple[FittedModel, RunFolder]]:
    """Runs that were not interrupted, by what several tests compare with them; who needs one first trains it."""
    return {}


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16", "bf16 fast"])
@pytest.mark.parametrize(("stop_at", "which"), [(3, signal.SIGINT), (6, signal.SIGTERM)])
def test_resumed_is_uninterrupted_bit_for_bit(
    lm_recipe: Recipes,
    train: Train,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    whole_runs: dict[str, tuple[FittedModel, RunFolder]],
    precision: str,
    stop_at: int,
    which: signal.Signals,
) -> None:
    monkeypatch.setattr(recorder, "LOG_EVERY", 4)  # the run stops in the middle of a window of the log
    options = {
        "optimization__max_steps": 10,
        "optimization__accumulation_steps": 2,
        "optimization__mixed_precision": precision.split()[0],
        "optimization__fast_attention": "fast" in precision,
        "model__attention_dropout": 0.1,
        "optimization__tokens_per_batch": 160,
        "evaluation__every_steps": 5,
        "evaluation__average_checkpoints": 2,
        "optimization__ema_decay": 0.9,
        "model__dropout": 0.3,
    }
    if precision not in whole_runs:
        whole_runs[precision] = train(lm_recipe(**options, output_dir=tmp_path_factory.mktemp("whole")))
    whole, whole_folder = whole_runs[precision]
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(TrainingStopped, match=f"stopped after step {stop_at}, and its state is saved"):
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
    assert_same_state(folder, whole_folder)


def assert_same_state(one: RunFolder, other: RunFolder) -> None:
    """The last checkpoints of two runs are equal to the last bit, but for what the clock says."""
    first, second = one.checkpoints()[-1][1], other.checkpoints()[-1][1]
    assert first.name == second.name
    for name in ("model.safetensors", "ema.safetensors"):
        if (second / name).exists():
            expected = load_file(second / name)
            for parameter, tensor in load_file(first / name).items():
                assert torch.equal(tensor, expected[parameter]), parameter
    for name in ("optimizer.pt", "random.pt"):
        assert_equal(torch.load(first / name, weights_only=True), torch.load(second / name, weights_only=True))
    states = [json.loads((path / "state.json").read_text()) for path in (first, second)]
    for state in states:
        state["progress"] |= {"seconds": 0, "joules": 0}
        state["progress"]["window"]["seconds"] = 0
    assert states[0] == states[1]


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_equal(left, right)
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


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
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    workers: list[int] = []

    def stream(*arguments: Any) -> BatchStream:
        workers.append(arguments[-1])
        return BatchStream(*arguments)

    monkeypatch.setattr(training_state, "BatchStream", stream)
    options = data | {"optimization__max_steps": 8, "evaluation__every_steps": 3, "model__dropout": 0.3}
    _, whole = train(lm_recipe(**options, output_dir=tmp_path / "whole"))

    def stop_at_first_validation(task: Task) -> None:
        validate = task.scoring.validate

        def validate_and_stop(model: Any) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            return validate(model)

        task.scoring.validate = validate_and_stop  # type: ignore[method-assign]

    with pytest.raises(TrainingStopped, match="stopped after step 3"):
        train(lm_recipe(**options), change=stop_at_first_validation)
    _, folder = train(lm_recipe(**options, resume=True))
    assert figures(folder) == figures(whole)
    assert workers == [data.get("data__workers", 0)] * 3
    if "data__streaming" not in data:  # workers change nothing at all
        _, without = train(lm_recipe(**options | {"data__workers": 0}, output_dir=tmp_path / "without"))
        assert figures(without) == figures(whole)


def test_a_second_signal_ends_it_at_once(lm_recipe: Recipes, train: Train) -> None:
    def change(task: Task) -> None:
        signal_at_batch(2, signal.SIGINT)(task)
        signal_at_batch(2, signal.SIGINT)(task)

    with pytest.raises(KeyboardInterrupt):
        train(lm_recipe(), change=change)


def test_a_run_that_crashed_before_its_first_checkpoint_is_resumed_from_the_start(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
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
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    _, whole = train(lm_recipe(output_dir=tmp_path / "whole"))

    def crash(task: Task) -> None:
        batches = iter(range(1, 100))
        collate = task.batches.collate
        # The fifth batch: the checkpoint is of step 3, the log has step 4 as well.
        task.batches.collate = lambda batch: collate(batch) if next(batches) < 5 else 1 / 0  # type: ignore

    with pytest.raises(ZeroDivisionError):
        train(lm_recipe(), change=crash)
    _, folder = train(lm_recipe(resume=True))
    assert figures(folder) == figures(whole)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "half a file": lambda path: (path / "model.safetensors").write_bytes(
        (path / "model.safetensors").read_bytes()[:1000]
    ),
    "one bit": lambda path: (path / "optimizer.pt").write_bytes(flip_bit((path / "optimizer.pt").read_bytes())),
    "a missing file": lambda path: (path / "random.pt").unlink(),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "half a manifest": lambda path: (path / "manifest.json").write_text("{"),
    "a foreign manifest": lambda path: (path / "manifest.json").write_text("[1]"),
}


def flip_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("fault", DAMAGES)
def test_a_damaged_checkpoint_is_left_for_the_one_before(
    lm_recipe: Recipes,
    train: Train,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    whole_runs: dict[str, tuple[FittedModel, RunFolder]],
    fault: str,
) -> None:
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    for steps in (9, 6):
        if f"{steps} steps" not in whole_runs:
            recipe = lm_recipe(optimization__max_steps=steps, output_dir=tmp_path_factory.mktemp("whole"))
            whole_runs[f"{steps} steps"] = train(recipe)
    _, whole = whole_runs["9 steps"]
    recipe = lm_recipe(optimization__max_steps=9, resume=True)
    folder = RunFolder(recipe.run)
    shutil.copytree(whole_runs["6 steps"][1].path, folder.path)
    path = folder.checkpoints()[-1][1]
    assert find_damage(path) is None
    DAMAGES[fault](path)
    assert find_damage(path) is not None
    capsys.readouterr()
    _, folder = train(recipe)
    said = capsys.readouterr().err
    assert f"{path} is damaged (" in said
    assert f"going on from {path.with_name('step-3')}" in said
    chosen = len(figures(whole)) - 1
    assert figures(folder)[:chosen] == figures(whole)[:chosen]
    assert_same_state(folder, whole)


def test_a_run_with_nothing_but_damaged_checkpoints(lm_recipe: Recipes, train: Train) -> None:
    _, folder = train(lm_recipe())
    for _, path in folder.checkpoints():
        (path / "state.json").write_text("{}")
    before = folder.metrics_path.read_bytes()
    with pytest.raises(InputError, match=f"every checkpoint of {folder.path} is damaged; give --overwrite"):
        train(lm_recipe(resume=True))
    assert folder.metrics_path.read_bytes() == before


def test_a_checkpoint_of_another_model(lm_recipe: Recipes, train: Train) -> None:
    train(lm_recipe())
    with pytest.raises(InputError, match=r"checkpoint in .* is of another model: size mismatch for .{10}"):
        train(lm_recipe(resume=True, model__hidden_size=32))


def test_a_checkpoint_that_reads_back_wrong_ends_the_run_and_keeps_the_one_before(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = checkpoints.write_snapshot

    def write_badly(path: Path, snapshot: checkpoints.Snapshot) -> None:
        write(path, snapshot)
        if "step-6" in path.name:
            DAMAGES["one bit"](path)

    monkeypatch.setattr(loop, "write_snapshot", write_badly)
    recipe = lm_recipe(checkpoints__keep_last=1)
    with pytest.raises(InputError, match=r"step-6 was written, and reading it back finds it damaged \(optimizer.pt"):
        train(recipe)
    assert [step for step, _ in RunFolder(recipe.run).checkpoints()] == [3, 6]


def test_fewer_steps_than_the_run_has_made(lm_recipe: Recipes, train: Train) -> None:
    _, folder = train(lm_recipe())
    before = folder.metrics_path.read_bytes()
    with pytest.raises(InputError, match=r"optimization.max_steps is 3; it must be greater, as the run .* at step 6"):
        train(lm_recipe(resume=True, optimization__max_steps=3))
    assert folder.metrics_path.read_bytes() == before


def test_a_finished_run_is_resumed_to_its_result(lm_recipe: Recipes, train: Train) -> None:
    fitted, _ = train(lm_recipe())
    again, _ = train(lm_recipe(resume=True))
    assert again.weights == fitted.weights
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, fitted.model.state_dict()[name]), name


def test_a_full_disk_leaves_the_last_checkpoint(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = checkpoints.write_snapshot

    def fill_the_disk(path: Path, snapshot: checkpoints.Snapshot) -> None:
        write(path, snapshot)
        if "step-6" in path.name:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(loop, "write_snapshot", fill_the_disk)
    recipe = lm_recipe()
    with pytest.raises(InputError, match=r"cannot write .*step-6: No space left on device"):
        train(recipe)
    assert [path.name for path in RunFolder(recipe.run).checkpoints_path.iterdir()] == ["step-3"]


def test_the_optimizer_goes_on_with_the_recipe_s_options(lm_recipe: Recipes, train: Train) -> None:
    """Its state is the checkpoint's; what was changed in the recipe is not overwritten by it."""
    train(lm_recipe())
    _, folder = train(lm_recipe(resume=True, optimization__max_steps=9, optimization__weight_decay=0.2))
    state = torch.load(folder.checkpoints()[-1][1] / "optimizer.pt", weights_only=True)
    assert sorted(group["weight_decay"] for group in state["param_groups"]) == [0.0, 0.2]


def test_other_batches_begin_with_the_next_epoch(
    lm_recipe: Recipes, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    train(lm_recipe())
    epochs: list[int] = []

    def watch(task: Task) -> None:
        pools = task.batches.pools
        task.batches.pools = lambda epoch, first: epochs.append(epoch) or pools(epoch, first)  # type: ignore

    train(lm_recipe(resume=True, optimization__max_steps=7, optimization__tokens_per_batch=32), change=watch)
    assert "optimization.tokens_per_batch changed, and so have the batches: epoch 1 begins" in capsys.readouterr().err
    assert epochs == [1]


@pytest.mark.parametrize("optimizer", ["adam", "adafactor", "muon", "schedule_free"])
def test_every_optimizer_resumes_exactly(lm_recipe: Recipes, train: Train, tmp_path: Path, optimizer: str) -> None:
    options = {"optimization__optimizer": optimizer, "optimization__max_steps": 8, "model__dropout": 0.2}
    options |= {"optimization__weight_decay": 0.1, "optimization__r_drop": 1.0 if optimizer == "adam" else 0}
    if optimizer == "schedule_free":
        options |= {"optimization__schedule": "constant", "optimization__warmup_steps": 3}
    _, whole = train(lm_recipe(**options, output_dir=tmp_path / "whole"))
    with pytest.raises(TrainingStopped):
        train(lm_recipe(**options), change=signal_at_batch(4, signal.SIGTERM))
    _, folder = train(lm_recipe(**options, resume=True))
    assert figures(folder) == figures(whole)
    assert_same_state(folder, whole)
