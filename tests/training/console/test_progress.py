import io

import pytest

from paperformer.training.console import progress
from paperformer.training.console.progress import ProgressBar, say


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A second passes whenever tqdm looks at the time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def work(steps: int, *, leave: bool = True) -> None:
    with ProgressBar(total=steps, desc="train", unit=" step", leave=leave) as bar:
        bar._time = Clock()
        bar.start_t = bar.last_print_t = 0.0
        for step in range(1, steps + 1):
            bar.set_postfix_str(f"loss {10 / step:.1f}", refresh=False)
            bar.update()
            if step == 50:
                say("step 50: validation")


def test_a_log_file_gets_a_line_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    work(100)
    assert "\r" not in log.getvalue()
    lines = log.getvalue().splitlines()
    assert "step 50: validation" in lines
    bars = [line for line in lines if line != "step 50: validation"]
    assert 3 <= len(bars) <= 7  # 100 steps take from 100 to 200 seconds, at half a minute a line
    for line in bars:
        assert line.startswith("train: ")
        assert " left, " in line
        assert "loss 0." in line
    assert bars[-1].startswith("train: 100/100 (100%), ")


def test_what_is_not_left_standing_ends_without_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    work(100, leave=False)
    assert "train: " in log.getvalue()
    assert "train: 100/100" not in log.getvalue()


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    work(100)
    shown = terminal.getvalue()
    assert shown.count("\r") > 50  # drawn at every step that takes half a second
    assert "loss 0.1" in shown
    assert "step 50: validation\n" in shown


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_short_work_shows_nothing(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    output = stream()
    monkeypatch.setattr("sys.stderr", output)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_FRAMES", 100.0)
    for _ in ProgressBar(range(100), desc="tokenize"):
        pass
    assert output.getvalue().strip() == ""


def test_the_first_process_alone_speaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    say("hello")
    work(100)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "0")
    say("hello")
    assert capsys.readouterr().err == "hello\n"
