"""The exercises that train: reversal, lstm, norms."""

import json
import math
import shutil
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState

from paperformer import InputError, TrainingStopped, read_recipe
from paperformer.exercises import norms as norms_exercise
from paperformer.exercises.against_lstm import sample_text, steps_in_the_same_time
from paperformer.exercises.lstm import LSTMForCausalLM, lstm_objective
from paperformer.exercises.norms import PLACES
from paperformer.exercises.parts import forget_parts
from paperformer.exercises.reversal import Sequences, accuracy_by_length
from paperformer.plots.gradient_norms import GradientHistory
from paperformer.training.evaluation.metrics import BITS_PER_BYTE, LOSS
from paperformer.training.reporting.comparison import read_run
from paperformer.training.run import make_tokenizers
from paperformer.training.tasks.objective import Objective
from paperformer.training.tasks.protocols import Task
from paperformer.training.tasks.registry import OBJECTIVES

from .conftest import Done, do

TEXT = "the history of machine learning is long and has many fathers who read a book"
TINY = {"hidden_size": 16, "layers": 1, "tokens_per_batch": 64}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "my.txt"
    words = TEXT.split()
    lines = [" ".join(words[(line * 7 + word * (line % 5 + 1)) % 15] for word in range(9)) for line in range(120)]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def task_of(run: Path, change: Callable[[Objective], Objective] = lambda objective: objective) -> Task:
    """What a finished run was trained on, made again."""
    recipe = read_recipe(run / "recipe.yaml", output_dir=run.parent)
    objective = change(OBJECTIVES[str(recipe.run.objective)])
    splits = objective.open_splits(recipe)
    return objective.make_task(recipe, splits, make_tokenizers(objective, recipe, splits))


def batches_of(task: Task) -> list[dict[str, torch.Tensor]]:
    (pool, *_) = islice(task.batches.pools(0, 0), 1)
    return [task.batches.collate(batch) for batch in pool[:5]]


def assert_same_batches(tasks: list[Task]) -> None:
    first, *others = map(batches_of, tasks)
    for other in others:
        torch.testing.assert_close(other, first, rtol=0, atol=0)


# --- reversal ---


@pytest.fixture(scope="module")
def reversal(tmp_path_factory: pytest.TempPathFactory) -> Done:
    data = {"pairs": 200, "tested": 3, "longest": 5, "longest_tested": 6, "symbols": 12}
    return do(tmp_path_factory.mktemp("reversal"), "reversal", steps=8, **data, **TINY)


@pytest.mark.proof
def test_reversal_compares_two_models_of_one_size(reversal: Done) -> None:
    transformer, lstm = (reversal.figures[name] for name in ("transformer", "lstm"))
    assert lstm["parameters"] == pytest.approx(transformer["parameters"], rel=0.1)  # even widths of 16 are coarse
    assert lstm["parameters"] != transformer["parameters"]
    assert transformer["steps"] == lstm["steps"] == 8
    assert transformer["learning_rate"] != lstm["learning_rate"]
    assert list(reversal.figures["by_length"]["lstm"]) == ["4", "5", "6"]
    assert "\n| 6 (not trained) |" in reversal.card
    assert "| LSTM with attention |" in reversal.card
    for paper in ("Vaswani", "Bahdanau", "Luong"):
        assert f"{paper} et al. 20" in reversal.card


@pytest.mark.proof
def test_no_sequence_that_is_tested_was_trained(reversal: Done) -> None:
    (data,) = reversal.folder.glob("data-*")
    lines = {path.name: path.read_text("utf-8").split() for path in data.iterdir()}
    train, validation, test = (lines[f"{split}.forward"] for split in ("train", "validation", "test"))
    assert len({*train, *validation, *test}) == len(train) + len(validation) + len(test) == 200 + 20 + 9
    assert lines["test.backward"] == [text[::-1] for text in test]
    assert {len(text) for text in train} == {4, 5}
    assert json.loads((reversal.folder / "lstm" / "data.json").read_text("utf-8"))["train"]["cleaning"]["kept"] == 200


@pytest.mark.proof
def test_the_lstm_learns_from_the_transformers_batches(reversal: Done) -> None:
    tasks = [task_of(reversal.folder / "transformer"), task_of(reversal.folder / "lstm", lstm_objective)]
    assert_same_batches(tasks)
    assert [type(task.build_model()).__name__ for task in tasks] == [
        "PaperformerForConditionalGeneration",
        "LSTMForConditionalGeneration",
    ]


@pytest.mark.proof
def test_no_card_presents_an_lstm_as_a_model_of_the_package(reversal: Done) -> None:
    assert (reversal.folder / "transformer" / "model" / "README.md").is_file()
    assert not (reversal.folder / "lstm" / "model" / "README.md").exists()


def test_accuracy_is_counted_over_the_references() -> None:
    found = accuracy_by_length(["abcd", "bcda", "abcde"], ["abcd", "bc", "abcdef"])
    assert found[4] == {"token": 6 / 8, "sequence": 1 / 2, "count": 2}
    assert found[5] == {"token": 1.0, "sequence": 0.0, "count": 1}


def test_sequences_follow_from_the_seed() -> None:
    options = {"symbols": 26, "longest": 6, "longest_tested": 7, "pairs": 50, "tested": 2}
    assert Sequences(**options, seed=1).draw() == Sequences(**options, seed=1).draw()
    assert Sequences(**options, seed=1).draw() != Sequences(**options, seed=2).draw()


# --- lstm ---


@pytest.fixture(scope="module")
def lstm(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    data = {"text": text, "words": 600, "vocab_size": 290, "context_length": 16}
    sampling = {"max_new_tokens": 4, "continuations": 1}
    return do(tmp_path_factory.mktemp("lstm"), "lstm", steps=6, **data, **sampling, **TINY)


@pytest.mark.proof
def test_language_models_compare_by_steps_and_by_time(lstm: Done) -> None:
    transformer, by_steps, by_time = (lstm.figures[name] for name in ("transformer", "lstm-steps", "lstm-time"))
    assert by_steps["parameters"] == by_time["parameters"] == pytest.approx(transformer["parameters"], rel=0.1)
    assert transformer["steps"] == by_steps["steps"] == 6
    runs = {name: read_run(lstm.folder / name) for name in lstm.figures if name != "continuations"}
    assert by_time["steps"] == steps_in_the_same_time(runs["transformer"], runs["lstm-steps"])
    assert transformer["test_perplexity_per_token"] == pytest.approx(math.exp(transformer["test_loss"]))
    assert all(f"\n| {title} |" in lstm.card for title in ("Transformer", "LSTM, same steps", "LSTM, same time"))
    assert lstm.card.count("The history of machine learning") >= 3
    assert_same_batches([task_of(lstm.folder / "transformer"), task_of(lstm.folder / "lstm-steps", lstm_objective)])


@pytest.mark.proof
def test_the_lstm_has_not_the_flops_of_a_transformer(lstm: Done) -> None:
    task = task_of(lstm.folder / "lstm-steps", lstm_objective)
    (batch, *_) = batches_of(task)
    assert task.flops_of is not None
    assert task.flops_of(batch) == 6 * lstm.figures["lstm-steps"]["parameters"] * batch["labels"].numel()
    loaded = LSTMForCausalLM.from_pretrained(lstm.folder / "lstm-steps" / "model")
    assert loaded.num_parameters() == lstm.figures["lstm-steps"]["parameters"]


@pytest.fixture(scope="module")
def twin(lstm: Done) -> Done:
    run = lstm.folder / "transformer"
    return do(lstm.folder, "lstm_twin", run, layers=2, learning_rate=0.01, max_new_tokens=4, continuations=1)


@pytest.mark.proof
def test_the_twin_of_a_run_has_its_size_its_batches_and_its_time(lstm: Done, twin: Done) -> None:
    of_run, of_twin = twin.figures["Transformer"], twin.figures["LSTM"]
    assert of_twin["parameters"] == pytest.approx(of_run["parameters"], rel=0.1)
    trial = read_run(twin.folder / "trial")
    run = read_run(lstm.folder / "transformer")
    assert of_twin["steps"] == steps_in_the_same_time(run, trial)
    recipe = read_run(twin.folder / "lstm").recipe
    assert recipe["optimization.learning_rate"] == 0.01
    assert recipe["optimization.schedule"] == run.recipe["optimization.schedule"]
    with_two = partial(lstm_objective, layers=2)
    assert_same_batches([task_of(run.path), task_of(twin.folder / "lstm", with_two)])
    assert json.loads((twin.folder / "lstm" / "config.json").read_text("utf-8"))["num_hidden_layers"] == 2


@pytest.mark.proof
def test_the_end_of_a_line_counts_as_a_word_of_published_perplexities(lstm: Done, twin: Done) -> None:
    (data,) = lstm.folder.glob("data-*")
    text = (data / "test.txt").read_text("utf-8")
    for name, run in (("Transformer", lstm.folder / "transformer"), ("LSTM", twin.folder / "lstm")):
        (loss,) = (score for score in read_run(run).test if score.metric is LOSS)
        per_word = loss.value * loss.count / len(f"{text}".replace("\n", " <eos> ").split())
        assert twin.figures[name]["test_perplexity_per_word_or_line_end"] == pytest.approx(math.exp(per_word))
        assert f"{math.exp(per_word):.2f} |" in twin.card


@pytest.mark.proof
def test_a_twin_of_other_layers_or_of_another_model_is_refused(
    refused: Callable[..., str], lstm: Done, twin: Done, tmp_path: Path
) -> None:
    run = lstm.folder / "transformer"
    message = refused("exercise", "lstm_twin", run, "--layers", 1, "--output_dir", twin.folder.parent)
    assert message.startswith(f"{twin.folder / 'trial'} was trained with 2 layers, and this asks for 1; give --over")
    message = refused("exercise", "lstm_twin", tmp_path, "--output_dir", tmp_path)
    assert message.startswith(f"{tmp_path} is no finished run (")


def test_the_sample_is_of_whole_lines_that_follow_each_other(text: Path) -> None:
    splits = sample_text(str(text), 100)
    counts = {name: len(part.split()) for name, part in splits.items()}
    assert counts == {"train.txt": 108, "validation.txt": 18, "test.txt": 18}
    assert text.read_text("utf-8").startswith("".join(splits.values()))


# --- norms, and what all three have in common ---


@pytest.fixture(scope="module")
def norms_options(text: Path) -> dict[str, Any]:
    content = text.read_text("utf-8")
    for split in ("train", "validation", "test"):
        text.with_name(f"{split}.txt").write_text(content if split == "train" else content[:400], "utf-8")
    return {"dataset": text.parent, "vocab_size": 290, "steps": 40, "warmup_steps": 4, **TINY, "layers": 2,
            "tokens_per_batch": 128, "hidden_size": 32}  # fmt: skip


@pytest.fixture(scope="module")
def norms(norms_options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Done:
    return do(tmp_path_factory.mktemp("norms"), "norms", **norms_options)


@pytest.mark.proof
def test_the_twins_differ_in_their_norms_alone(norms: Done) -> None:
    recipes = {place: read_run(norms.folder / place).recipe for place in PLACES}
    first = recipes["post"]
    for place in PLACES:
        changed = {name for name, value in recipes[place].items() if value != first[name]}
        assert changed == ({"name", "model.norm_position"} if place != "post" else set())
    tasks = [task_of(norms.folder / place) for place in PLACES]
    assert_same_batches(tasks)
    weights = []
    for task in tasks:
        torch.manual_seed(1)
        weights.append({name: weight for name, weight in task.build_model().named_parameters() if "norm" not in name})
    for other in weights[1:]:
        torch.testing.assert_close(other, weights[0], rtol=0, atol=0)


@pytest.mark.proof
def test_the_card_of_the_twins(norms: Done) -> None:
    assert list(norms.figures) == list(PLACES)
    for place in PLACES:
        of = norms.figures[place]
        assert of["validation_loss"] == read_run(norms.folder / place).best
        assert f"| {place} | {of['parameters']:,} | {of['validation_loss']:.4f} |" in norms.card
    picture = (norms.folder / "gradients.svg").read_text("utf-8")
    assert all(f"{place}-norm" in picture for place in PLACES)
    assert "layer 1" in picture or "<!-- layer -->" in picture


def test_a_gradient_that_vanishes_is_told(tmp_path: Path) -> None:
    """As that of the first layers under post-norm does."""
    run = SimpleNamespace(
        parameters=9,
        best=4.0,
        test=[SimpleNamespace(metric=metric, value=1.0) for metric in (LOSS, BITS_PER_BYTE)],
        seconds=60.0,
        events=[],
    )
    modules = {"layers.0": [0.5, 1e-13], "layers.1": [0.42, 1.5]}
    cards = []
    for first in (1e-13, 0.0):
        modules["layers.0"][1] = first
        figures = norms_exercise._figures(run, GradientHistory([20, 800], [1.0, 1.0], modules))  # type: ignore[arg-type]
        cards.append(norms_exercise._table({"post": json.loads(json.dumps(figures, allow_nan=False))}))
    assert "| 0.84 | 1.5e+13 |" in cards[0]
    assert "| 0.84 | ∞ |" in cards[1]


@pytest.mark.proof
def test_what_is_finished_is_not_done_again_and_what_is_not_goes_on(
    norms: Done, norms_options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(norms.folder / "peri" / "model")  # as if it had been killed before its end
    capsys.readouterr()
    again = do(norms.folder.parent, "norms", **norms_options)
    said = capsys.readouterr().err
    assert f"{norms.folder / 'post'} is finished" in said
    assert f"{norms.folder / 'pre'} is finished" in said
    assert f"== {norms.folder / 'peri'}" in said
    assert "validation loss" not in said.replace("(validation loss", "")  # no step was taken again
    assert again.figures == norms.figures


def test_parts_of_other_options_are_not_compared(
    norms: Done, norms_options: dict[str, Any], refused: Callable[..., str]
) -> None:
    options = [word for name, value in norms_options.items() for word in (f"--{name}", value)]
    given = ("exercise", "norms", *options, "--output_dir", norms.folder.parent)
    assert refused(*given, "--seed", 2) == (
        f"{norms.folder / 'post'} was trained with seed 1, and this asks for 2; give --overwrite to train all parts "
        "anew, or another --output_dir"
    )
    assert refused(*given, "--steps", 20) == "--steps is 20; curves need at least 40"


def test_an_interruption_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise TrainingStopped("stopped after step 3, and its state is saved")

    monkeypatch.setattr(norms_exercise, "train_part", stop)
    with pytest.raises(SystemExit) as ended:
        do(tmp_path, "norms", "--overwrite", steps=50)
    assert ended.value.code == 130
    assert capsys.readouterr().err.endswith(
        f"its state is saved; go on with: paperformer exercise norms --steps 50 --output_dir {tmp_path}\n"
    )


def test_overwrite_forgets_all_parts_and_nothing_else(tmp_path: Path) -> None:
    for name in ("pre", ".pre.begun", "data-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("", "utf-8")
    forget_parts(tmp_path, PLACES)
    assert [path.name for path in tmp_path.iterdir()] == ["data-1"]


def test_bad_input_is_one_line(refused: Callable[..., str], text: Path, tmp_path: Path) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)

    def says(*words: object) -> str:
        return refused("exercise", *words, "--output_dir", tmp_path)

    assert says("reversal", "--symbols", 1) == "--symbols is 1; it must be from 2 to 26"
    assert says("reversal", "--symbols", 3).startswith(
        "there are 81 different sequences of 4 symbols out of 3, too few"
    )
    assert says("reversal", "--longest", 9, "--longest_tested", 8).startswith("--longest is 9 and --longest_tested 8;")
    assert says("reversal", "--tested", 0) == "--tested is 0; it must be at least 1"
    assert says("lstm", "--text", text).startswith(f"{text} has 1,080 words; --words 50000 needs 60,000, with those to")
    assert "there is no" in says("lstm", "--text", tmp_path / "none.txt")
    assert says("lstm", "--text", text, "--words", 0) == "--words is 0; it must be at least 1"
    with pytest.raises(InputError, match="too few"):
        Sequences(symbols=2, longest=4, longest_tested=4, pairs=10, tested=1, seed=1)
