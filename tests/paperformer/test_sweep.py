"""Sweeps: what is refused before anything is trained, the table, and going on after an interruption."""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import paperformer
from paperformer import InputError, TrainingDivergedError, TrainingStopped, sweep
from paperformer.cli import main
from paperformer.sweeps import carrying_out
from paperformer.sweeps.options import find_sweep, read_options
from paperformer.sweeps.results import STUDENT, RunResult, Spread, compare
from paperformer.sweeps.rows import Sweep, make_sweep
from paperformer.sweeps.table import SweepTable
from paperformer.training.engine import loop

LINES = [f"The {animal} {verb} in the {place}.\n" for animal in ("dog", "cat", "man") for verb in ("runs", "sings")
         for place in ("house", "garden", "long queue", "sea")]  # fmt: skip
SHIPPED = sorted(path.stem for path in (Path(__file__).parents[2] / "training/recipes/sweeps").glob("*.yaml"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A recipe of a language model of two steps."""
    folder = tmp_path_factory.mktemp("sweep")
    for split, times in {"train": 20, "validation": 2, "test": 1}.items():
        (folder / f"{split}.txt").write_text("".join(LINES) * times, "utf-8")
    return {
        "objective": "lm",
        "data": {"dataset": str(folder), "context_length": 16},
        "cleaning": {"leak_check": False, "duplicates": "keep"},
        "tokenizer": {"vocab_size": 300},
        "model": {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1},
        "optimization": {"max_steps": 2, "tokens_per_batch": 64, "warmup_steps": 1},
        "evaluation": {"every_steps": 2, "validation_samples": 0, "samples": 0},
    }


@pytest.fixture(scope="module")
def asked(base: dict[str, Any]) -> dict[str, Any]:
    rows = {"pre": None, "post": {"model.norm_position": "post"}}
    output_dir = str(Path(base["data"]["dataset"]) / "runs")
    return {"name": "norms", "base": base, "rows": rows, "score_at": [8], "output_dir": output_dir}


@pytest.fixture(scope="module")
def table(asked: dict[str, Any]) -> Iterator[SweepTable]:
    """A sweep of two runs that was carried out."""
    measure = cache(loop.peak_flops_of)  # takes a second each time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "peak_flops_of", lambda device, _: measure(device, "no"))
        yield sweep(asked)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which runs are trained from here on; none really is. A name in `fates` ends as it says."""
    names: list[str] = []

    def run(objective: Any, recipe: Any, command: str) -> None:
        names.append(recipe.run.name)
        folder = Path(recipe.run.output_dir) / recipe.run.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recipe.yaml").write_text(recipe.yaml, "utf-8")
        if recipe.run.name in FATES:
            raise FATES[recipe.run.name]
        (folder / "model").mkdir()

    def read(folder: Path, seed: int) -> RunResult:
        result = RunResult(seed=seed, folder=str(folder))
        if (folder / "recipe.yaml").is_file():
            result.state = "interrupted"
        if (folder / "model").is_dir():
            loss = 2.0 + 0.1 * ("post" in folder.name) + 0.01 * seed
            result.state, result.steps, result.scores = "finished", 2, {"validation": {"loss": loss}}
        return result

    monkeypatch.setattr(carrying_out, "run", run)
    monkeypatch.setattr(carrying_out, "read_trained", read)
    return names


FATES: dict[str, Exception] = {}


def planned(*words: str) -> Sweep:
    return make_sweep(*read_options(words))


def test_a_sweep_trains_every_row_and_writes_a_table(table: SweepTable, asked: dict[str, Any]) -> None:
    lines = [line.split(" | ") for line in table.path.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert lines[0][3:6] == ["validation loss", "against pre", "at 8 tokens"]
    assert [line[0].removeprefix("| ") for line in lines[2:]] == ["pre", "post"]
    assert lines[3][1] == "`model.norm_position` post"
    record = json.loads(table.path.with_suffix(".json").read_text("utf-8"))
    losses = []
    for row, line in zip(record["rows"], lines[2:], strict=True):
        (run,) = row["runs"]
        told = paperformer.Run(run["folder"])
        (loss,) = [score for score in told.scores if (score.split, score.metric.name) == ("validation", "loss")]
        assert run["scores"]["validation"]["loss"] == loss.value == row["validation"]["mean"]
        assert line[3] == f"{loss.value:.4f}"
        assert f"{told.model.num_parameters():,}" == line[2]
        assert run["at"]["8"]["loss"] != loss.value
        losses.append(loss.value)
    assert record["rows"][1]["difference"]["mean"] == pytest.approx(losses[1] - losses[0])
    assert "test loss" not in table.markdown
    assert "With one seed a small difference may be chance" in table.markdown


def test_what_is_finished_is_not_repeated(table: SweepTable, asked: dict[str, Any], trained: list[str]) -> None:
    del table  # which has been made
    again = sweep(asked, rows={"pre": None}, test=True)
    assert trained == []
    assert "| test loss |" in again.markdown


def test_a_run_of_another_recipe_is_not_mixed_in(table: SweepTable, asked: dict[str, Any]) -> None:
    del table
    with pytest.raises(InputError, match=r"pre-seed1 was made with model\.norm_position pre, and its row now has post"):
        sweep(asked, rows={"pre": {"model.norm_position": "post"}})


def test_a_finished_model_is_scored_again(table: SweepTable, asked: dict[str, Any]) -> None:
    model = table.results["pre", 1].folder
    rows = {"16": {"data.context_length": 16}, "8": {"data.context_length": 8}}
    again = sweep(model=model, rows=rows, name="lengths", output_dir=asked["output_dir"])
    trained = table.results["pre", 1]
    assert again.results["16", 1].scores["validation"] == pytest.approx(trained.scores["validation"])
    assert again.results["8", 1].scores["validation"] == pytest.approx(trained.at[8])
    with pytest.raises(InputError, match=r"row x: model\.dropout cannot change, as model is a trained one"):
        sweep(model=model, rows={"x": {"model.dropout": 0.1}}, output_dir=asked["output_dir"])


def test_seeds_give_a_spread_and_failures_do_not_stop_it(
    base: dict[str, Any], tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FATES, "bad-seed1", TrainingDivergedError("step 3: the loss is not finite; stopped"))
    monkeypatch.setitem(FATES, "bad-seed2", InputError("there is not enough memory"))
    monkeypatch.setitem(FATES, "last-seed2", TrainingStopped("stopped after step 1"))
    rows: dict[str, Any] = {"pre": None, "bad": {"model.dropout": 0.9}, "post": {"model.norm_position": "post"}}
    options = {"base": base, "rows": rows | {"last": {"model.dropout": 0.2}}, "seeds": [1, 2], "name": "s"}
    with pytest.raises(TrainingStopped):
        sweep(options, output_dir=str(tmp_path))
    order = ["pre", "bad", "post", "last"]
    assert trained == [f"{row}-seed{seed}" for seed in (1, 2) for row in order]  # a whole table of one seed first
    del FATES["last-seed2"], trained[:]
    table = sweep(options, output_dir=str(tmp_path))
    assert trained == ["bad-seed2", "last-seed2"]  # what diverged would again; what failed may not
    text = table.path.read_text("utf-8")
    assert "| pre | nothing: the base | – | 2.0150 ± 0.0071 | – | 2 | 0.0 |" in text
    assert "| +0.1000 ± 0.0000 |" in text  # what a seed does to both cancels out
    assert "- post against pre: +0.1000 ± 0.0000 loss (95 % interval of 2 seeds): worse." in text
    assert "- last against pre: +0.0000 ± 0.0000 loss (95 % interval of 2 seeds): no difference" in text
    assert "| 0 (1 diverged, 1 failed) |" in text
    assert "- bad, seed 1 diverged: step 3: the loss is not finite\n- bad, seed 2 failed: there is not enough" in text


def test_intervals_are_student_s() -> None:
    spread = Spread.of([1.0, 2.0, 6.0])
    assert spread is not None
    assert (spread.mean, spread.deviation) == (3.0, pytest.approx(7**0.5))
    assert spread.interval == pytest.approx(4.303 * (7 / 3) ** 0.5)
    assert Spread.of([]) is None
    difference = compare({1: 5.0, 2: 7.0, 4: 0.0}, {1: 4.0, 2: 5.0, 3: 9.0})
    assert difference is not None
    assert (difference.mean, difference.count) == (1.5, 2)
    assert Spread(0.0, 1.0, 50).interval == pytest.approx(STUDENT[-1] / 50**0.5)


def test_lists_on_the_command_line_are_a_grid(tmp_path: Path) -> None:
    words = ["--config", "shakespeare-lm", "--optimization.optimizer", "[adamw,muon]", "--model.dropout", "0.2"]
    found = planned(*words, "--optimization.mixed_precision", "[no,bf16]", "--trackers", "[tensorboard]")
    assert found.name == "shakespeare-lm-optimizer-mixed_precision"
    assert [row.name for row in found.rows] == [
        f"optimizer={name}, mixed_precision={precision}" for name in ("adamw", "muon") for precision in ("no", "bf16")
    ]
    assert [row.recipe.optimization.mixed_precision for row in found.rows] == ["no", "bf16"] * 2
    assert all(row.recipe.model["dropout"] == 0.2 for row in found.rows)
    assert found.rows[0].recipe.run.trackers == ["tensorboard"]  # a field that takes a list
    assert [row.name for row in planned(*words).rows] == ["adamw", "muon"]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_sweeps_can_be_carried_out(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = yaml.safe_load(find_sweep(name).read_text("utf-8"))
    if "model" in content:
        (tmp_path / content["model"] / "model").mkdir(parents=True)
        recipe = paperformer.read_recipe("multi30k-en-de").yaml
        (tmp_path / content["model"] / "recipe.yaml").write_text(recipe, "utf-8")
    found = planned(name)
    assert found.name == name
    assert [row.name for row in found.rows] == [str(row) for row in content["rows"]]
    assert find_sweep(name).read_text("utf-8").startswith("# ")  # what it asks


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", r"a sweep needs either base, the recipe of its rows, or model"),
        ("--base shakespeare-lm", "a sweep has either rows, or a grid of fields with several values"),
        ("norm-placment", "there is no file norm-placment, and no sweep of that name; did you mean norm-placement"),
        ("norm-placement positions", "'positions' belongs to no option; one sweep is given at a time"),
        ("tied-embeddings --optimization.max_stepz 3", "there is no option --optimization.max_stepz; did you mean"),
        ("tied-embeddings --seeds [1,1]", r"seeds are \[1, 1\]; they must be different numbers"),
        ("tied-embeddings --score blue", "score is blue; did you mean bleu"),
        ("tied-embeddings --baseline none", "baseline is none; it must be a row: tied, untied"),
        ("tied-embeddings --score_at [64,9999]", "row tied, score_at 9999: data.context_length is 9999"),
        ("tied-embeddings --model.hidden_size [64,96]", "either rows, or a grid .*; model.hidden_size have? several"),
        ("--base shakespeare-lm --optimization.optimizer [adamw,schedule_free]", "row schedule_free: optimization.sch"),
        ("--base shakespeare-lm --seed [1,2]", "row seed=1: seed is the sweep's, and no field of a row"),
        ("--model nowhere --evaluation.num_beams [1,2]", "model is nowhere; it must be the folder of a finished run"),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_is_trained(words: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        planned(*words.split())


def test_the_command_lists_its_rows_and_says_how_to_go_on(
    base: dict[str, Any],
    tmp_path: Path,
    trained: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refused: Callable[..., str],
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"base": base, "rows": {"one": None, "two": {"model.dropout": 0.5}}}), "utf-8")
    main(["sweep", str(file), "--check"])
    assert "two  model.dropout 0.5" in capsys.readouterr().out
    assert trained == []
    monkeypatch.setitem(FATES, "two-seed1", TrainingStopped("stopped after step 1"))
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", str(file), "--output_dir", str(tmp_path / "out")])
    assert stopped.value.code == 130
    assert "stopped after step 1; the same command goes on with the sweep" in capsys.readouterr().err
    file.write_text("base: shakespeare-lm\nrow: {}\n", "utf-8")
    assert refused("sweep", file) == f"{file}, line 2: there is no field row; did you mean rows?"


@pytest.mark.parametrize("name", ["a/b", "..", ".", "", " ", "a\\b", "/tmp"])
def test_a_row_is_named_as_a_folder_can_be(name: str, tmp_path: Path) -> None:
    rows = {"plain": {}, name: {"seed": 3}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({"base": "shakespeare-lm", "rows": rows}), "utf-8")
    with pytest.raises(InputError, match=f"row '{re.escape(name)}' cannot be the name of a folder"):
        planned(str(tmp_path / "sweep.yaml"))
