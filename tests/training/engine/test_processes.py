"""Two processes compute what one computes: with whole weights on each (DDP), with sharded ones (FSDP2), and with blocks
that they compute together (tensor parallelism).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState

from paperformer.tokenization import train_tokenizer
from paperformer.training.reporting import recorder

from ..conftest import PAIRS, TINY, command_line
from . import two_processes

pytestmark = pytest.mark.proof

BATCHES = {"whole": 1, "sharded": 1, "tensor": 2}  # a step of each process; one process alone takes 2
LAST_STEP = 6

Case = dict[str, Any]


def launch(script: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    with subprocess.Popen(
        [*launcher, *script],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=250)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the processes that it has launched as well
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, text_folder: Path, pairs_folder: Path) -> Callable[..., Case]:
    """Makes the description of a run for `two_processes`."""
    folder = tmp_path_factory.mktemp("processes")
    for family, append_eos in (("lm", False), ("seq2seq", True)):
        texts = [text for pair in PAIRS for text in pair]
        train_tokenizer(texts, 300, append_eos=append_eos).save_pretrained(folder / family)
    families = {
        "lm": {
            "data.dataset": text_folder,
            "data.context_length": 16,
            "model.num_hidden_layers": 2,
            "model.qk_norm": True,
            "model.use_bias": True,
        },
        "seq2seq": {
            "data.dataset": pairs_folder,
            "data.source_language": "en",
            "data.target_language": "de",
            "data.max_length": 20,
            "model.max_position_embeddings": 20,  # a model that has learned little writes on to the end
            "model.encoder_layers": 1,
            "model.decoder_layers": 1,
            "model.label_smoothing": 0.1,
            "evaluation.select_by": "bleu",
        },
    }

    def make(family: str, name: str, *, layout: str = "whole", disturbance: str | None = None, **options: Any) -> Case:
        every = {
            "name": name,
            "output_dir": folder / "runs",
            "optimization.max_steps": LAST_STEP,
            "optimization.tokens_per_batch": 64,
            "optimization.accumulation_steps": BATCHES[layout],
            "optimization.adam_epsilon": 1e-5,  # rounding of gradients that should be 0 must not become a step
            "optimization.ema_decay": 0.5,
            "model.dropout": 0.0,
            "evaluation.every_steps": 3,
            "evaluation.average_checkpoints": 2,
            "evaluation.validation_samples": 1,
        }
        changes = {option.replace("__", "."): value for option, value in options.items()}
        arguments = command_line(TINY | every | families[family] | changes)
        found = {"family": family, "arguments": arguments, "tokenizer": str(folder / family), "layout": layout}
        found |= {"folder": str(folder / "runs" / name)}
        return found | ({"disturbance": disturbance} if disturbance else {})

    return make


@pytest.fixture(scope="module")
def results(case: Callable[..., Case], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Folders of runs by name: each family on one process and, in all layouts, on two; resumptions; and what torchrun
    has said, in errors.txt of the folder "launch".
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "LOG_EVERY", 1)
        for variable, value in two_processes.LAYOUTS["whole"].items():
            patch.setenv(variable, value)
        cases: dict[str, Case] = {}

        def alone(name: str, made: Case) -> None:
            AcceleratorState._reset_state(reset_partial_state=True)
            cases[name] = made
            two_processes.run(made)
            AcceleratorState._reset_state(reset_partial_state=True)

        together: list[Case] = []
        for family in ("lm", "seq2seq"):
            alone(f"{family} alone", case(family, f"{family}-alone", optimization__accumulation_steps=2))
            for layout in BATCHES:
                name = f"{family} {layout}"
                cases[name] = case(family, f"{family}-{layout}", layout=layout)
                together.append(cases[name])
        first_half = case("lm", "from-alone", optimization__accumulation_steps=2)
        alone("lm first half", first_half)
        for layout in BATCHES:
            name = f"lm alone, then {layout}"
            cases[name] = case("lm", f"alone-then-{layout}", layout=layout, resume=True)
            keep_first_half(Path(first_half["folder"]), Path(cases[name]["folder"]))
            together.append(cases[name])
        for layout in ("sharded", "tensor"):
            name = f"seq2seq finished, then {layout}"
            cases[name] = case("seq2seq", f"finished-then-{layout}", layout=layout, resume=True)
            shutil.copytree(cases["seq2seq alone"]["folder"], cases[name]["folder"])
            together.append(cases[name])
        for name, options in (("dropout", {}), ("dropout, resumed", {"resume": True})):
            made = cases[name] = case("lm", name, layout="tensor", model__dropout=0.3, **options)
            if options:
                keep_first_half(Path(first_half["folder"]), Path(made["folder"]))
            together.append(made)
        for what in ("stop", "poison"):
            options = {"guard__non_finite": "roll_back"} if what == "poison" else {}
            cases[what] = case("lm", what, disturbance=what, **options)
            together.append(cases[what])
        cases["patience"] = case(
            "lm", "patience", evaluation__patience=1, evaluation__min_improvement=100, evaluation__every_steps=2
        )
        together.append(cases["patience"])

        together.append(case("lm", "die", disturbance="die"))
        folder = tmp_path_factory.mktemp("launch")
        (folder / "cases.json").write_text(json.dumps(together))
        ended = launch([two_processes.__file__, "cases.json"], folder)
        (folder / "errors.txt").write_text(ended.stderr)
        assert ended.returncode == 1, ended.stderr[-4000:]  # of the last case only: the launcher kills the others
        assert "rank 1 dies" in ended.stderr, ended.stderr[-4000:]

        for layout in BATCHES:
            name = f"lm {layout}, then alone"
            made = case("lm", f"{layout}-then-alone", resume=True, optimization__accumulation_steps=2)
            keep_first_half(Path(cases[f"lm {layout}"]["folder"]), Path(made["folder"]))
            alone(name, made)
        yield {name: Path(made["folder"]) for name, made in cases.items()} | {"launch": folder}


def keep_first_half(run: Path, copy: Path) -> None:
    """Copies a run as it was after its third step."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints" / f"step-{LAST_STEP}")


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


FIGURES = ("loss", "gradient_norm", "learning_rate", "padding", "flops")


def training_figures(run: Path) -> list[list[float]]:
    return [[line[name] for name in FIGURES] for line in lines(run) if "learning_rate" in line]


def result(run: Path, rank: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / f"result-{rank}.json").read_text())
    return found


def evaluation(run: Path, rank: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / f"evaluation-{rank}.json").read_text())
    return found


SAME = [(f"{family} {layout}", f"{family} alone") for family in ("lm", "seq2seq") for layout in BATCHES]
SAME += [(f"lm alone, then {layout}", "lm alone") for layout in BATCHES]
SAME += [(f"lm {layout}, then alone", "lm alone") for layout in BATCHES]
SAME += [(f"seq2seq finished, then {layout}", "seq2seq alone") for layout in ("sharded", "tensor")]


@pytest.mark.parametrize(("name", "expected"), SAME, ids=[name for name, _ in SAME])
def test_processes_together_do_what_one_does(results: dict[str, Path], name: str, expected: str) -> None:
    run, alone = results[name], results[expected]
    assert result(run) == result(alone)
    figures = training_figures(alone)
    assert len(figures) == LAST_STEP
    assert training_figures(run) == [pytest.approx(step, rel=1e-5) for step in figures]
    scores = [line["validation"] for line in lines(alone) if "validation" in line]
    assert [line["validation"] for line in lines(run) if "validation" in line] == [
        pytest.approx(score, rel=1e-5) for score in scores
    ]
    weights, expected_weights = torch.load(run / "final.pt"), torch.load(alone / "final.pt")
    assert weights.keys() == expected_weights.keys()
    for parameter, tensor in weights.items():
        torch.testing.assert_close(tensor, expected_weights[parameter], rtol=1e-4, atol=1e-5, msg=parameter)


@pytest.mark.parametrize(("name", "expected_from"), SAME[:6] + SAME[-2:])
def test_scores_and_outputs_are_those_of_one_process(results: dict[str, Path], name: str, expected_from: str) -> None:
    run, alone = results[name], results[expected_from]
    layout = name.split()[-1]
    expected = evaluation(alone)
    assert (run / "samples.jsonl").read_text() == (alone / "samples.jsonl").read_text()
    ranks = [0] if layout == "whole" else [0, 1]  # the second process waits, or computes the same
    for rank in ranks:
        found = evaluation(run, rank)
        assert found["scores"] == pytest.approx(expected["scores"], rel=1e-5)
        assert found["outputs"] == expected["outputs"]
    assert any(text.strip() for text in expected["outputs"])
    assert (run / "evaluation-1.json").exists() is (layout != "whole")


@pytest.mark.parametrize("layout", ["sharded", "tensor"])
def test_no_process_has_the_whole_model_but_to_save_it(results: dict[str, Path], layout: str) -> None:
    for family in ("lm", "seq2seq"):
        # To begin with, and in the first process for the end; there are two validations in between.
        assert [evaluation(results[f"{family} {layout}"], rank)["built"] for rank in (0, 1)] == [2, 1]


@pytest.mark.parametrize(
    ("name", "is_same"), [("lm whole", False), ("lm sharded", False), ("dropout", True), ("dropout, resumed", True)]
)
def test_processes_draw_the_same_if_their_batches_are_the_same(
    results: dict[str, Path], name: str, is_same: bool
) -> None:
    states = [torch.load(results[name] / f"generator-{rank}.pt") for rank in (0, 1)]
    assert torch.equal(*states) is is_same


def test_every_process_stops_where_one_was_asked_to(results: dict[str, Path]) -> None:
    for rank in (0, 1):
        found = result(results["stop"], rank)
        assert found["error"] == "TrainingStopped"
        assert found["message"].startswith("stopped after step 3,")
    assert (results["stop"] / "checkpoints" / "step-3").is_dir()


def test_every_process_rolls_back_where_one_saw_nan(results: dict[str, Path]) -> None:
    (event,) = [line for line in lines(results["poison"]) if "event" in line]
    assert (event["at_step"], event["step"], event["action"]) == (3, 0, "roll_back")
    assert [result(results["poison"], rank)["step"] for rank in (0, 1)] == [LAST_STEP, LAST_STEP]


def test_every_process_stops_early(results: dict[str, Path]) -> None:
    assert [result(results["patience"], rank)["step"] for rank in (0, 1)] == [4, 4]


def test_a_process_that_dies_ends_the_run(results: dict[str, Path]) -> None:
    """The last run of all: with it the launcher ends."""
    errors = (results["launch"] / "errors.txt").read_text()
    assert "rank 1 dies" in errors
    assert "exitcode  : 3" in errors
