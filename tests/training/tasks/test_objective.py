from pathlib import Path
from typing import Any

import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.tasks.registry import OBJECTIVES, objective_of_recipe, objective_of_task

from ..conftest import command_line


@pytest.mark.parametrize("in_file", [False, True])
def test_a_score_that_there_is_not_is_named_with_its_place(
    in_file: bool, seq2seq_options: dict[str, Any], tmp_path: Path
) -> None:
    arguments = command_line(seq2seq_options)
    if in_file:
        (tmp_path / "mine.yaml").write_text("evaluation:\n  num_beams: 2\n  select_by: ter\n")
        arguments, place = ["--config", str(tmp_path / "mine.yaml"), *arguments], rf"{tmp_path}/mine.yaml, line 3: "
    else:
        arguments, place = [*arguments, "--evaluation.select_by", "ter"], "--"
    with pytest.raises(InputError, match=rf"^{place}evaluation.select_by is ter; it must be loss, bleu, chrf or exact"):
        OBJECTIVES["seq2seq"].read_recipe(arguments)


def test_every_score_of_outputs_can_be_selected_by(seq2seq_options: dict[str, Any]) -> None:
    for name in ("loss", "bleu", "chrf", "exact_match"):
        recipe = OBJECTIVES["seq2seq"].read_recipe(command_line(seq2seq_options | {"evaluation.select_by": name}))
        assert recipe.evaluation.select_by == name


def test_a_language_model_is_chosen_by_its_loss(lm_options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"evaluation.select_by is 'bleu'; a language model is chosen by its 'loss'"):
        OBJECTIVES["lm"].read_recipe(command_line(lm_options | {"evaluation.select_by": "bleu"}))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_is_known_by_its_task_and_by_its_recipes(name: str) -> None:
    objective = OBJECTIVES[name]
    assert objective_of_task(objective.hub_task) is objective
    assert objective_of_recipe({"objective": name}) is objective
    assert objective_of_recipe({"name": "any"}) is None


def test_recipes_of_earlier_versions_are_known_by_their_data() -> None:
    assert objective_of_recipe({"data.source_language": "en"}) is OBJECTIVES["seq2seq"]
    assert objective_of_recipe({"data.language": "en"}) is OBJECTIVES["lm"]


def test_a_recipe_for_another_objective_is_refused(lm_options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="the recipe's objective is encoder; train it with paperformer train encoder"):
        OBJECTIVES["lm"].read_recipe(command_line(lm_options | {"objective": "encoder"}))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_help_says_how_to_begin(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        OBJECTIVES[name].read_recipe(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"usage: paperformer train {name} ")
    assert "--config RECIPE [overrides], or from a file without one, --data.train FILE" in shown
    assert f"accelerate launch -m {OBJECTIVES[name].script}." in shown
