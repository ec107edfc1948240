import math
import sys
from pathlib import Path
from typing import Any

import pytest
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker

from paperformer.training.console.input_error import InputError
from paperformer.training.reporting import trackers
from paperformer.training.reporting.trackers import check_trackers, select_scalars, start_trackers, track

RECIPE = {"name": "tiny", "trackers": ["tensorboard"], "optimization": {"max_steps": 40, "schedule": "cosine"}}
FIGURES = {
    "step": 20,
    "loss": 3.25,
    "learning_rate": 1e-3,
    "gradient_norm": 0.5,
    "gradient_norm_by_layer": {"encoder.layers.0": 0.3, "norm": 0.4},
    "utilisation": None,
    "seconds": 1.5,
}
VALIDATION = {"step": 20, "validation": {"loss": 3.0, "bleu": 12.5}, "seconds": 1.5}


class Recorder(GeneralTracker):
    """A tracker that keeps in memory what it is given."""

    name = "recorder"
    requires_logging_directory = False

    def __init__(self) -> None:
        super().__init__()
        self.logged: list[tuple[int | None, dict[str, Any]]] = []
        self.is_finished = False

    @property
    def tracker(self) -> list[Any]:
        return self.logged

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.logged.append((step, values))

    def finish(self) -> None:
        self.is_finished = True


class FakeTracker(Recorder):
    """In place of Accelerate's TensorBoardTracker or TrackioTracker."""

    def __init__(self, kind: str, made: list["FakeTracker"], /, *arguments: Any, **options: Any):
        super().__init__()
        self.name, self.arguments, self.options = kind, arguments, options
        made.append(self)

    def start(self) -> None:
        print("chatter")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeTracker]:
    """The trackers that are started, which are fakes; both packages seem to be installed."""
    made: list[FakeTracker] = []
    monkeypatch.setattr(trackers, "find_spec", lambda name: object())
    monkeypatch.setattr(trackers, "TensorBoardTracker", lambda *a, **o: FakeTracker("tensorboard", made, *a, **o))
    monkeypatch.setattr(trackers, "TrackioTracker", lambda *a, **o: FakeTracker("trackio", made, *a, **o))
    for variable in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(variable, raising=False)
    return made


@pytest.fixture
def accelerator() -> Accelerator:
    return Accelerator(cpu=True)


def test_figures_are_sent_as_scalars() -> None:
    assert select_scalars(FIGURES) == {
        "train/loss": 3.25,
        "train/learning_rate": 1e-3,
        "train/gradient_norm": 0.5,
        "train/seconds": 1.5,
        "gradient_norm/encoder.layers.0": 0.3,
        "gradient_norm/norm": 0.4,
    }
    assert select_scalars(VALIDATION) == {"validation/loss": 3.0, "validation/bleu": 12.5}


@pytest.mark.parametrize(
    "record",
    [
        {"step": 0, "hardware": "1 core", "processes": 1, "peak_flops": 1e11},
        {"step": 9, "event": "spike", "action": "warn", "reason": "...", "batch": {"epoch": 1}},
        {"step": 9, "chosen": "step 9", "select_by": "loss", "candidates": {"step 9": 1.0}},
        {"step": 9, "loss": math.nan},
    ],
)
def test_other_records_send_nothing(record: dict[str, Any], accelerator: Accelerator) -> None:
    recorder = Recorder()
    accelerator.trackers = [recorder]
    track(accelerator, record)
    assert recorder.logged == []
    track(accelerator, FIGURES)
    assert [step for step, _ in recorder.logged] == [20]


def test_trackers_are_started_told_and_ended(made: list[FakeTracker], accelerator: Accelerator, tmp_path: Path) -> None:
    start_trackers(accelerator, ["tensorboard", "trackio"], tmp_path, "tiny", RECIPE)
    track(accelerator, FIGURES)
    accelerator.end_training()
    board, trackio = made
    assert board.arguments == ("tensorboard", tmp_path)
    assert board.options == {"purge_step": 1}
    assert trackio.arguments == ("paperformer",)
    assert trackio.options == {
        "name": "tiny",
        "resume": "never",
        "embed": False,
        "config": {
            "name": "tiny",
            "trackers": ["tensorboard"],
            "optimization.max_steps": 40,
            "optimization.schedule": "cosine",
        },
    }
    assert board.logged[-1] == trackio.logged[-1] == (20, select_scalars(FIGURES))
    (_, told), *_ = board.logged
    assert "    max_steps: 40\n".replace("    ", "      ") in told["recipe"]  # indented, hence a block of code
    assert board.is_finished
    assert trackio.is_finished


def test_a_resumed_run_goes_on_where_it_was(made: list[FakeTracker], accelerator: Accelerator, tmp_path: Path) -> None:
    start_trackers(accelerator, ["tensorboard", "trackio"], tmp_path, "tiny", RECIPE, step=40)
    board, trackio = made
    assert board.options["purge_step"] == 41
    assert trackio.options["resume"] == "allow"


def test_only_the_trackers_named_are_started(made: list[FakeTracker], accelerator: Accelerator, tmp_path: Path) -> None:
    start_trackers(accelerator, [], tmp_path, "tiny", RECIPE)
    track(accelerator, FIGURES)
    assert made == []
    start_trackers(accelerator, ["trackio"], tmp_path, "tiny", RECIPE)
    assert [tracker.name for tracker in made] == ["trackio"]


def test_standard_output_is_left_to_results(
    made: list[FakeTracker], accelerator: Accelerator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_trackers(accelerator, ["trackio"], tmp_path, "tiny", RECIPE)
    assert capsys.readouterr() == ("", "chatter\n")


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_a_missing_package_is_told_in_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, accelerator: Accelerator, tmp_path: Path
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda package: None)
    with pytest.raises(InputError, match=rf"{name}.*pip install 'paperformer\[tracking\]'") as raised:
        start_trackers(accelerator, [name], tmp_path, "tiny", RECIPE)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("variable", ["TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"])
def test_figures_do_not_leave_the_machine(
    variable: str, monkeypatch: pytest.MonkeyPatch, made: list[FakeTracker]
) -> None:
    monkeypatch.setenv(variable, "somebody/somewhere")
    check_trackers(["tensorboard"])
    with pytest.raises(InputError, match=rf"{variable} is somebody/somewhere; .*unset it"):
        check_trackers(["trackio"])


def test_tensorboard_hides_what_a_resumed_run_repeats(accelerator: Accelerator, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is in the extra 'tracking'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for first, loss in ((0, 1.0), (20, 2.0)):  # resumed from step 20 of 60
        start_trackers(accelerator, ["tensorboard"], tmp_path, "tiny", RECIPE, step=first)
        for step in range(first + 20, 80, 20):
            track(accelerator, FIGURES | {"step": step, "loss": loss})
        accelerator.end_training()
        accelerator.trackers.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["tensorboard"]
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(20, 1.0), (40, 2.0), (60, 2.0)]
    assert events.Scalars("gradient_norm/encoder.layers.0")


def test_trackio_keeps_figures_on_this_machine(
    accelerator: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for variable in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(variable, raising=False)
    pytest.importorskip("trackio", reason="trackio is in the extra 'tracking'")
    from trackio.sqlite_storage import SQLiteStorage

    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "trackio"]:
        if hasattr(module, "TRACKIO_DIR"):  # read when it was imported, perhaps by another test
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    connections: list[object] = []
    monkeypatch.setattr("socket.socket.connect", lambda *where: connections.append(where))
    monkeypatch.setattr("socket.getaddrinfo", lambda *where: connections.append(where) or [])
    for first in (0, 20):
        start_trackers(accelerator, ["trackio"], tmp_path, "tiny", RECIPE, step=first)
        track(accelerator, FIGURES | {"step": first + 20})
        accelerator.end_training()
        accelerator.trackers.clear()
    (run,) = SQLiteStorage.get_run_records("paperformer")
    logged = SQLiteStorage.get_logs("paperformer", run["name"], run_id=run["id"])
    assert [(entry["step"], entry["train/loss"]) for entry in logged] == [(20, 3.25), (40, 3.25)]
    assert connections == []
    assert SQLiteStorage.get_run_config("paperformer", "tiny")["optimization.max_steps"] == 40
