import fcntl
import io
import math
import os
import pty
import re
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

from paperformer.training.console import progress
from paperformer.training.console.progress import ProgressBar, say
from paperformer.training.reporting.display import SMOOTHING, TrainingDisplay, readable_bytes


def record(step: int, **changes: Any) -> dict[str, Any]:
    """A line of metrics.jsonl."""
    return {
        "step": step,
        "loss": 3.25,
        "learning_rate": 5e-4,
        "gradient_norm": 0.7123,
        "gradient_norm_by_layer": {"layers.0": 0.7},
        "tokens_per_second": 12345.4,
        "padding": 0.0312,
        "memory": 1_234_000_000,
        "flops": 1e12,
        "utilisation": 0.413,
        "seconds": 10.0,
    } | changes


class Terminal:
    """A pseudo-terminal, and what somebody sees in it."""

    def __init__(self, columns: int):
        self.output, self.looks = b"", 0
        self.master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w")
        self.resize(columns)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def resize(self, columns: int) -> None:
        self.columns = columns
        fcntl.ioctl(self.stream, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def _read(self) -> None:
        with suppress(OSError):  # how Linux tells that the other end was closed
            while data := os.read(self.master, 4096):
                self.output += data

    def close(self) -> None:
        self.stream.close()
        self.reader.join()
        os.close(self.master)

    def screen(self) -> list[str]:
        """The lines that stand there now, without blanks at their ends."""
        end = "\x1b[m"
        self.stream.write(end)
        self.stream.flush()
        self.looks += 1
        while self.output.count(end.encode()) < self.looks:
            time.sleep(0.001)
        lines, row, column = [""], 0, 0
        for token in re.findall(r"\x1b\[\w|.", self.output.decode().replace(end, ""), re.DOTALL):
            if token == "\r":
                column = 0
            elif token == "\n":
                row += 1
            elif token == "\x1b[A":
                row -= 1
            else:
                assert token.isprintable()
                if column == self.columns:
                    row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
                lines[row] = lines[row][:column].ljust(column) + token + lines[row][column + 1 :]
                column += 1
        return [line.rstrip() for line in lines]


@pytest.fixture
def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Terminal]]:
    """Makes a terminal of so many columns the standard error; every frame is drawn."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_FRAMES", 0.0)
    with ExitStack() as stack:

        def open_and_use(columns: int) -> Terminal:
            terminal = stack.enter_context(closing(Terminal(columns)))
            monkeypatch.setattr("sys.stderr", terminal.stream)
            return terminal

        yield open_and_use


def test_a_terminal_shows_a_bar_and_all_figures(open_terminal: Callable[[int], Terminal]) -> None:
    terminal = open_terminal(120)
    with TrainingDisplay(1000, 0) as display:
        display.figures(record(20))
        display.validated({"loss": 2.5, "bleu": 30.125})
        for _ in range(20):
            display.step()
        bar, *figures = terminal.screen()
        assert re.match(r"train:   2%\|.* 20/1000 \[00:00<00:\d\d, .* step/s\]$", bar)
        assert figures == [
            "loss 3.250, smoothed 3.250, 12,345 tok/s, learning rate 0.0005, gradient norm 0.712",
            "validation loss 2.500, validation bleu 30.125, memory 1.2 GB, padding 3.1%, utilisation 41%",
        ]
        display.figures(record(40, loss=1.25, tokens_per_second=None, utilisation=None))
        display.step()
        _, first, second = terminal.screen()
        assert first == "loss 1.250, smoothed 2.197, learning rate 0.0005, gradient norm 0.712"
        assert second == "validation loss 2.500, validation bleu 30.125, memory 1.2 GB, padding 3.1%"


def test_a_terminal_shows_the_bar_at_once(
    open_terminal: Callable[[int], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal(80)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_FRAMES", 100.0)
    with TrainingDisplay(1000, 0):  # of which the first step may take a minute
        bar, *others = terminal.screen()
        assert re.match(r"train:   0%\| +\| 0/1000 ", bar)
        assert not any(others)


@pytest.mark.parametrize("columns", [120, 80, 40, 24])
def test_lines_and_bars_of_others_do_not_tear_it(columns: int, open_terminal: Callable[[int], Terminal]) -> None:
    terminal = open_terminal(columns)
    said: list[str] = []
    with TrainingDisplay(40, 0) as display:
        for step in range(1, 41):
            display.figures(record(step))
            display.step()
            if step % 20 == 0:
                with ProgressBar(total=50, desc="translate", delay=0) as bar:
                    for _ in range(50):
                        bar.update()
                    shown = starts(terminal)
                    assert shown == [*said, "train: ", "loss 3.", "validat" if said else "memory ", "transla"]
                    say("said")
                    said.append("said")
                    assert starts(terminal) == [*said, *shown[-4:]]
                display.validated({"loss": 2.5})
        assert starts(terminal) == [*said, "train: ", "loss 3.", "validat"]
    assert starts(terminal) == [*said, "train: "]
    assert terminal.screen()[2].startswith("train: 100%|"[: columns - 1])


def starts(terminal: Terminal) -> list[str]:
    """The first letters of each line up to the last that is not blank; none is as wide as the terminal."""
    lines = "\n".join(terminal.screen()).rstrip().split("\n")
    assert all(len(line) < terminal.columns for line in lines)
    return [line[:7] for line in lines]


def test_a_figure_is_shown_whole_or_not_at_all(open_terminal: Callable[[int], Terminal]) -> None:
    terminal = open_terminal(40)  # tqdm leaves the last column free
    with TrainingDisplay(40, 0) as display:
        display.figures(record(20))
        display.step()
        assert terminal.screen()[1:] == ["loss 3.250, smoothed 3.250", "memory 1.2 GB, padding 3.1%"]
        terminal.resize(41)
        display.step()
        assert terminal.screen()[1] == "loss 3.250, smoothed 3.250, 12,345 tok/s"


def test_it_goes_where_an_error_leaves_it(open_terminal: Callable[[int], Terminal]) -> None:
    terminal = open_terminal(80)
    with suppress(KeyboardInterrupt), TrainingDisplay(40, 0) as display:
        display.figures(record(20))
        display.step()
        raise KeyboardInterrupt
    say("interrupted")
    assert starts(terminal) == ["train: ", "interru"]


class Clock:
    """Three seconds pass whenever tqdm looks at the time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 3.0
        return self.now


def train_into_a_log(steps: int, initial_step: int = 0) -> None:
    with TrainingDisplay(steps, initial_step) as display:
        display._bar._time = Clock()
        display._bar.start_t = display._bar.last_print_t = 0.0
        for step in range(initial_step + 1, steps + 1):
            display.figures(record(step))
            if step == 50:
                display.validated({"bleu": 30.125})
            display.step()


def test_a_log_file_gets_plain_lines_twice_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    train_into_a_log(100)
    lines = log.getvalue().splitlines()
    assert 9 <= len(lines) <= 13  # 100 steps take 300 to 360 seconds, and a line stays at the end
    assert all(line.isprintable() for line in lines)
    assert re.match(r"train: \d\d?/100 \(\d\d?%\), \d\d:\d\d left, .* loss 3.250, smoothed 3.250, 12,345", lines[0])
    assert lines[0].endswith("gradient norm 0.712, memory 1.2 GB, padding 3.1%, utilisation 41%")
    assert "validation bleu 30.125" not in lines[0]
    assert "validation bleu 30.125, memory 1.2 GB" in lines[-1]
    assert lines[-1].startswith("train: 100/100 (100%)")


def test_the_time_left_counts_the_steps_of_this_start_only(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    train_into_a_log(1000, initial_step=980)
    assert re.match(r"train: 9(89|90|91)/1000 \(99%\), 00:[23]\d left, ", log.getvalue())


def test_a_roll_back_sets_the_count_back(open_terminal: Callable[[int], Terminal]) -> None:
    terminal = open_terminal(80)
    with TrainingDisplay(40, 20) as display:
        for _ in range(5):
            display.step()
        display.go_back(10)
        display.step()
        assert re.search(r" 11/40 \[00:00<00:\d\d, .*\d step/s\]$", terminal.screen()[0])


def test_the_first_process_alone_shows_it(
    open_terminal: Callable[[int], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    terminal, log = open_terminal(80), io.StringIO()
    with TrainingDisplay(40, 0) as display:
        display.figures(record(20))
        display.step()
    assert terminal.screen() == [""]
    monkeypatch.setattr("sys.stderr", log)
    train_into_a_log(100)
    assert log.getvalue() == ""


def smoothed(records: Iterable[dict[str, Any]], open_terminal: Callable[[int], Terminal]) -> str:
    terminal = open_terminal(80)
    with TrainingDisplay(40, 0) as display:
        for each in records:
            display.figures(each)
        display.step()
        return terminal.screen()[1].split(", ")[1]


def test_the_smoothed_loss_is_an_exponential_mean(open_terminal: Callable[[int], Terminal]) -> None:
    losses = [5.0, 4.0, 2.0]
    weights = [SMOOTHING**2, SMOOTHING, 1.0]
    mean = sum(weight * loss for weight, loss in zip(weights, losses, strict=True)) / sum(weights)
    records = [record(20 * i, loss=loss) for i, loss in enumerate(losses)]
    assert smoothed(records, open_terminal) == f"smoothed {mean:.3f}"
    not_finite = [*records[:1], record(10, loss=math.nan), *records[1:], record(60, loss=math.inf)]
    assert smoothed(not_finite, open_terminal) == f"smoothed {mean:.3f}"
    assert smoothed([record(20, loss=math.nan)], open_terminal) == "smoothed nan"


def test_what_was_not_finite_is_left_out(open_terminal: Callable[[int], Terminal]) -> None:
    terminal = open_terminal(100)
    with TrainingDisplay(40, 20) as display:
        display.figures(record(20, loss=None, gradient_norm=None))  # as metrics.jsonl has it
        display.figures({"step": 20, "validation": {"loss": None, "bleu": 2.0}})
        display.step()
        _, first, second = terminal.screen()
    assert first.startswith("12,345 tok/s, learning rate 0.0005")
    assert second.startswith("validation bleu 2.000, memory 1.2 GB")


def test_a_resumed_run_shows_the_last_records_of_before(open_terminal: Callable[[int], Terminal]) -> None:
    terminal = open_terminal(80)
    before: list[dict[str, Any]] = [
        {"step": 0, "hardware": "1 core", "processes": 1, "peak_flops": None},
        {"step": 20, "loss": 3.0, "learning_rate": 1e-5, "gradient_norm": 1.5, "tokens_per_second": 10.0},
        {"step": 20, "validation": {"loss": 2.0}, "seconds": 1.0},
        {"step": 20, "event": "spike", "action": "warn", "reason": "", "batch": {}},
    ]
    with TrainingDisplay(40, 20) as display:
        for each in before:
            display.figures(each)
        display.step()
        bar, *figures = terminal.screen()
    assert " 21/40 " in bar
    assert figures == [
        "loss 3.000, smoothed 3.000, 10 tok/s, learning rate 1e-05, gradient norm 1.5",
        "validation loss 2.000",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_949, "99.9 kB"),
        (99_950, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (1_234_000_000, "1.2 GB"),
        (139e9, "139 GB"),
        (2.5e12, "2.5 TB"),
    ],
)
def test_sizes_are_readable(count: float, text: str) -> None:
    assert readable_bytes(count) == text
