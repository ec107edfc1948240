import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paperformer.training.atomic_files import replace_file, replace_folder
from paperformer.training.console.input_error import InputError
from paperformer.training.recipe.data import TextData
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.recipe.run import RunOptions
from paperformer.training.run_folder import NothingSaved, RunFolder

Recipes = Callable[..., Recipe[TextData]]


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def put(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "file").write_text(text)


def started(recipe: Recipe[TextData]) -> RunFolder:
    folder = RunFolder(recipe.run)
    folder.check(recipe)
    folder.create(recipe.yaml)
    return folder


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ZeroDivisionError()])
def test_a_crash_while_writing_leaves_the_old_folder(tmp_path: Path, error: BaseException) -> None:
    def crash(folder: Path) -> None:
        put("new")(folder)
        raise error

    replace_folder(tmp_path / "folder", put("old"))
    with pytest.raises(InputError if isinstance(error, OSError) else type(error)) as caught:
        replace_folder(tmp_path / "folder", crash)
    assert tree(tmp_path) == {"folder/file": "old"}
    if isinstance(error, OSError):
        assert str(caught.value) == f"cannot write {tmp_path / 'folder'}: No space left on device"


def test_a_crash_before_the_renaming_leaves_the_old_folder_and_is_cleared_away(tmp_path: Path) -> None:
    replace_folder(tmp_path / "folder", put("old"))
    (tmp_path / "folder.partial").mkdir()
    put("half")(tmp_path / "folder.partial")  # as a killed process leaves it
    assert tree(tmp_path / "folder") == {"file": "old"}
    replace_folder(tmp_path / "folder", put("new"))
    assert tree(tmp_path) == {"folder/file": "new"}


@pytest.mark.parametrize("message", ["I/O error: File too large (os error 27)", "fail at inline_container.cc:672"])
def test_full_disks_as_safetensors_and_torch_report_them(tmp_path: Path, message: str) -> None:
    def crash(folder: Path) -> None:
        raise RuntimeError(message)

    with pytest.raises(InputError, match=r"cannot write .*folder, perhaps because the disk is full"):
        replace_folder(tmp_path / "folder", crash)
    assert tree(tmp_path) == {}


def test_replace_file(tmp_path: Path) -> None:
    replace_file(tmp_path / "file", "old")
    replace_file(tmp_path / "file", "new")
    with pytest.raises(UnicodeEncodeError):
        replace_file(tmp_path / "file", "half \ud800")
    assert tree(tmp_path) == {"file": "new"}


def test_checking_changes_nothing(lm_recipe: Recipes, tmp_path: Path) -> None:
    recipe = lm_recipe(output_dir=tmp_path / "a" / "b")
    RunFolder(recipe.run).check(recipe)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_run_is_neither_continued_nor_deleted_unasked(lm_recipe: Recipes) -> None:
    folder = started(lm_recipe())
    put("precious")(folder.path)
    before = tree(folder.path)
    with pytest.raises(InputError, match=r"the run .*tiny exists; give --resume, --overwrite or another --name"):
        RunFolder(folder.options).check(lm_recipe())
    overwriting = lm_recipe(overwrite=True)
    RunFolder(overwriting.run).check(overwriting)
    assert tree(folder.path) == before  # until everything else is checked as well
    RunFolder(overwriting.run).create(overwriting.yaml)
    assert tree(folder.path) == {"recipe.yaml": overwriting.yaml}


def test_a_folder_that_is_no_run_is_left_alone(lm_recipe: Recipes) -> None:
    recipe = lm_recipe(overwrite=True)
    path = RunFolder(recipe.run).path
    path.mkdir(parents=True)
    put("thesis")(path)
    with pytest.raises(InputError, match="exists and is not a run"):
        RunFolder(recipe.run).check(recipe)
    shutil.rmtree(path)
    path.write_text("a file")
    with pytest.raises(InputError, match="is a file; it must be a folder"):
        RunFolder(recipe.run).check(recipe)


def test_an_output_folder_that_cannot_be_written(lm_recipe: Recipes, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recipe = lm_recipe(output_dir=tmp_path / "file" / "runs")
    with pytest.raises(InputError, match=r"cannot write .*file.*: Not a directory"):
        RunFolder(recipe.run).check(recipe)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model__hidden_size": 32}, "was begun with model.hidden_size 16, and this recipe has 32"),
        ({"model__norm_position": "pre"}, "was begun with model.norm_position"),
        ({"tokenizer__vocab_size": 320}, "was begun with tokenizer.vocab_size 300, and this recipe has 320"),
    ],
)
def test_a_run_is_not_resumed_with_another_model(lm_recipe: Recipes, change: dict[str, Any], message: str) -> None:
    folder = started(lm_recipe(model__norm_position="post"))
    before = tree(folder.path)
    recipe = lm_recipe(**{"resume": True, "model__norm_position": "post"} | change)
    with pytest.raises(InputError, match=message):
        RunFolder(recipe.run).check(recipe)
    assert tree(folder.path) == before


def test_a_run_is_resumed_with_other_training(lm_recipe: Recipes) -> None:
    started(lm_recipe())
    folder = started(lm_recipe(resume=True, model__dropout=0.3, optimization__max_steps=99))
    assert "max_steps: 99" in folder.recipe_path.read_text()


def test_checkpoints_are_kept_as_asked_and_sorted_by_step(tmp_path: Path) -> None:
    folder = RunFolder(RunOptions(name="x", output_dir=str(tmp_path)))
    for step in (5, 10, 100):
        assert folder.save_checkpoint(step, put(str(step))).name == f"step-{step}"
    (folder.checkpoints_path / "step-7.partial").mkdir()
    assert [step for step, _ in folder.checkpoints()] == [5, 10, 100]
    folder.save_checkpoint(105, put("105"))
    folder.delete_checkpoints_except({10, 105})
    assert [step for step, _ in folder.checkpoints()] == [10, 105]
    folder.create("name: x\n")
    assert sorted(path.name for path in folder.checkpoints_path.iterdir()) == ["step-10", "step-105"]


def test_half_a_line_of_metrics_is_ignored(tmp_path: Path) -> None:
    folder = RunFolder(RunOptions(name="x", output_dir=str(tmp_path)))
    assert folder.metrics() == []
    folder.create("name: x\n")
    for step in (1, 2, 3):
        folder.log({"step": step})
    with folder.metrics_path.open("a") as file:
        file.write('{"step": 4, "lo')
    assert folder.metrics() == [{"step": 1}, {"step": 2}, {"step": 3}]
    for step in (2, 3):
        folder.log_samples({"step": step, "samples": [["ä"]]})
    folder.forget_after(2)
    assert folder.samples() == [{"step": 2, "samples": [["ä"]]}]
    folder.log({"step": 3, "again": True})
    lines = folder.metrics_path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]
    folder.log({"step": 3, "loss": float("nan"), "norms": {"a": float("inf"), "b": [1.0, float("-inf")]}})
    assert folder.metrics()[-1] == {"step": 3, "loss": None, "norms": {"a": None, "b": [1.0, None]}}
    folder.log({"step": 3, "chosen": "step 2"})  # what a run resumed at its very end does again
    folder.forget_after(3)
    assert "chosen" not in folder.metrics()[-1]


def finished(recipe: Recipe[TextData]) -> None:
    """A run whose folder holds one file, its model."""
    put("precious")(started(recipe).path)


def begin(folder: RunFolder, recipe: Recipe[TextData], *, checkpoint: bool = False, validated: bool = False) -> None:
    """What a new run does before something happens to it."""
    folder.check(recipe)
    folder.create(recipe.yaml)
    if checkpoint:
        folder.save_checkpoint(5, put("5"))
    if validated:
        folder.log({"step": 5, "validation": {"loss": 1.0}})
        folder.settle()


def fail(
    error: BaseException,
    recipe: Recipe[TextData],
    look: Callable[[RunFolder], None] = lambda folder: None,
    **begun: bool,
) -> None:
    """A new run that ends with an error."""
    with (folder := RunFolder(recipe.run)).taken():
        begin(folder, recipe, **begun)
        look(folder)
        raise error


def names(folder: RunFolder) -> set[str]:
    return {path.name for path in folder.path.parent.iterdir()}


@pytest.mark.parametrize("error", [InputError("no memory"), KeyboardInterrupt(), ZeroDivisionError()])
def test_a_run_is_back_if_the_one_that_replaces_it_fails(
    lm_recipe: Recipes, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(lm_recipe())
    recipe = lm_recipe(overwrite=True, seed=2)
    folder = RunFolder(recipe.run)
    before = tree(folder.path)
    expected = NothingSaved if isinstance(error, KeyboardInterrupt) else type(error)

    def look(folder: RunFolder) -> None:
        assert tree(folder.path) == {"recipe.yaml": recipe.yaml}
        assert tree(folder.replaced_path) == before

    with pytest.raises(expected):
        fail(error, recipe, look)
    assert tree(folder.path) == before
    assert names(folder) == {"tiny"}
    said = "tiny is again the run that was to be replaced; the new one had saved nothing, and is gone\n"
    assert capsys.readouterr().err.endswith(said)


def test_an_interruption_before_the_folder_is_touched_has_saved_nothing(lm_recipe: Recipes) -> None:
    finished(lm_recipe())
    folder = RunFolder(lm_recipe(overwrite=True).run)
    with pytest.raises(NothingSaved), folder.taken():
        raise KeyboardInterrupt
    assert "file" in tree(folder.path)


def test_a_run_is_replaced_at_the_first_validation(lm_recipe: Recipes) -> None:
    finished(lm_recipe())
    recipe = lm_recipe(overwrite=True, seed=2)
    folder = RunFolder(recipe.run)

    def look(folder: RunFolder) -> None:
        assert names(folder) == {"tiny", ".tiny.lock", ".tiny.holder"}

    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt(), recipe, look, checkpoint=True, validated=True)
    assert tree(folder.path).keys() == {"recipe.yaml", "checkpoints/step-5/file", "metrics.jsonl"}
    assert names(folder) == {"tiny"}


def test_a_saved_run_is_resumed_although_the_old_one_is_back(
    lm_recipe: Recipes, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(lm_recipe())
    recipe = lm_recipe(overwrite=True, model__hidden_size=32)  # as the old one could not be resumed
    folder = RunFolder(recipe.run)
    before = tree(folder.path)
    with pytest.raises(KeyboardInterrupt) as stopped:
        fail(KeyboardInterrupt(), recipe, checkpoint=True)
    assert not isinstance(stopped.value, NothingSaved)
    assert "the new one is kept, and --resume goes on with it" in capsys.readouterr().err
    assert tree(folder.path) == before
    assert names(folder) == {"tiny", ".tiny.begun"}

    resumed = lm_recipe(resume=True, model__hidden_size=32)

    def look(folder: RunFolder) -> None:
        assert [step for step, _ in folder.checkpoints()] == [5]

    for validated in (False, True):  # fails once more, and then after its validation
        with pytest.raises(ZeroDivisionError):
            fail(ZeroDivisionError(), resumed, look, validated=validated)
        assert (tree(folder.path) == before) is not validated
    assert [step for step, _ in folder.checkpoints()] == [5]
    assert names(folder) == {"tiny"}


def test_overwriting_anew_forgets_what_was_begun(lm_recipe: Recipes) -> None:
    finished(lm_recipe())
    recipe = lm_recipe(overwrite=True)
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError(), recipe, checkpoint=True)
    with (folder := RunFolder(recipe.run)).taken():
        begin(folder, recipe, validated=True)
        assert folder.checkpoints() == []
    assert names(folder) == {"tiny"}


@pytest.mark.parametrize("flag", ["overwrite", "resume", None])
@pytest.mark.parametrize("saved", ["nothing", "checkpoint", "validated"])
def test_the_next_start_after_a_kill(
    lm_recipe: Recipes, flag: str | None, saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(lm_recipe())
    recipe = lm_recipe(overwrite=True)
    killed = RunFolder(recipe.run)
    before = tree(killed.path)
    begin(killed, recipe, checkpoint=saved != "nothing")
    if saved == "validated":
        killed.log({"step": 5, "validation": {"loss": 1.0}})
    assert killed.replaced_path.exists()

    following = lm_recipe(**{flag: True} if flag else {})
    folder = RunFolder(following.run)
    if flag == "resume" and saved == "nothing":
        with pytest.raises(
            InputError, match="is the run from before --overwrite: of the one to be resumed nothing was"
        ):
            folder.taken().__enter__()
        with folder.taken():  # now it is meant
            assert tree(folder.path) == before
        return
    with folder.taken():
        assert f"a process was killed while it replaced the run {folder.path}" in capsys.readouterr().err
        steps = [step for step, _ in folder.checkpoints()]
        if saved == "validated":
            assert (steps, folder.replaced_path.exists()) == ([5], False)
        elif flag == "resume":
            assert (steps, tree(folder.replaced_path)) == ([5], before)
        else:
            assert tree(folder.path) == before
            assert folder.begun_path.exists() is (saved == "checkpoint")
        if flag is None:
            with pytest.raises(InputError, match="exists; give --resume, --overwrite"):
                folder.check(following)


def test_a_kill_between_two_renamings(lm_recipe: Recipes) -> None:
    finished(lm_recipe())
    recipe = lm_recipe(overwrite=True)
    folder = RunFolder(recipe.run)
    before = tree(folder.path)
    begin(folder, recipe, checkpoint=True)
    folder.path.rename(folder.begun_path)
    with RunFolder(lm_recipe().run).taken():
        assert tree(folder.path) == before
    resumed = RunFolder(lm_recipe(resume=True).run)
    with resumed.taken():
        assert [step for step, _ in resumed.checkpoints()] == [5]
