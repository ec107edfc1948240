import contextlib
import io
import re
import sys
from collections.abc import Callable

import pytest

from paperformer.cli import main
from paperformer.training.console.colours import COLOURS, is_coloured, paint
from paperformer.training.recipe.command_line import CommandLine


class Stream(io.StringIO):
    def __init__(self, *, in_terminal: bool):
        super().__init__()
        self.in_terminal = in_terminal

    def isatty(self) -> bool:
        return self.in_terminal


@pytest.fixture
def surround(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what is said of colours by variables, and nothing else is."""

    def surround(**variables: str) -> None:
        for name, value in ({"NO_COLOR": "", "FORCE_COLOR": "", "TERM": "xterm-256color"} | variables).items():
            monkeypatch.setenv(name, value)

    return surround


@pytest.mark.parametrize(
    ("variables", "in_terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_where_colours_are(
    variables: dict[str, str], in_terminal: bool, expected: bool, surround: Callable[..., None]
) -> None:
    surround(**variables)
    assert is_coloured(Stream(in_terminal=in_terminal)) == expected


def test_no_colours_where_standard_error_is_closed(surround: Callable[..., None]) -> None:
    surround()
    assert not is_coloured(None)


HELP = [
    (["--help"], [("heading", "usage:"), ("name", "quickstart"), ("option", "--config")]),
    (["tokenizer", "-h"], [("name", "compare"), ("option", "--help")]),
    (
        ["translate", "--help"],
        [
            ("heading", "options:"),
            ("name", "model"),
            ("given", "--help"),
            ("given", "--n_best_format"),
            ("option", "--num_beams"),
            ("value", "{moses,json}"),
            ("value", "INPUT"),
            ("type", "(type: int | null, default: null)"),
        ],
    ),
]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="argparse colours its help itself")
@pytest.mark.parametrize(("arguments", "parts"), HELP)
def test_help_in_a_terminal_is_plain_help_in_colours(
    arguments: list[str],
    parts: list[tuple[str, str]],
    surround: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    surround(COLUMNS="200")
    shown = {}
    for in_terminal in (False, True):
        stream = Stream(in_terminal=in_terminal)
        monkeypatch.setattr("sys.stdout", stream)
        with contextlib.suppress(SystemExit):
            main(arguments)
        shown[in_terminal] = stream.getvalue()
    assert "\x1b" not in shown[False]
    assert re.sub(r"\x1b\[[\d;]+m", "", shown[True]) == shown[False]
    for part, text in parts:
        assert paint(text, COLOURS[part]) in shown[True]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="argparse colours its help itself")
def test_an_odd_default_leaves_what_comes_after_it(surround: Callable[..., None]) -> None:
    surround()

    def command(*, first: str = "(", second: int = 2) -> None:
        """Do it.

        Args:
            first: One (of two.
            second: The other.
        """

    command_line = CommandLine(prog="words")
    command_line.add_function(command)
    stream = Stream(in_terminal=True)
    command_line.parser.print_help(stream)
    assert paint("--second", COLOURS["given"]) in stream.getvalue()
    assert paint("(type: int, default: 2)", COLOURS["type"]) in stream.getvalue()


@pytest.mark.parametrize("in_terminal", [False, True])
def test_errors_begin_in_red(in_terminal: bool, surround: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    surround()
    stream = Stream(in_terminal=in_terminal)
    monkeypatch.setattr("sys.stderr", stream)
    with pytest.raises(SystemExit):
        main(["trian"])
    how = "\x1b[1;31merror:\x1b[0m" if in_terminal else "error:"
    assert stream.getvalue() == f"{how} 'trian' is no command; did you mean paperformer train?\n"
