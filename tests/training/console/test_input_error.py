import os
import subprocess
import sys

import pytest

from paperformer.training.console.input_error import InputError, one_line_errors


def ending(error: BaseException) -> object:
    """The exit code of a program in which this is raised."""
    with pytest.raises(SystemExit) as stopped, one_line_errors():
        raise error
    return stopped.value.code


def test_what_ends_a_program_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(InputError("two\nlines")) == 2
    assert capsys.readouterr().err == "error: two lines\n"
    assert ending(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert ending(SystemExit(7)) == 7
    with pytest.raises(BrokenPipeError), one_line_errors():  # of something else than standard output
        raise BrokenPipeError


@pytest.mark.parametrize("lines", [1, 100_000])  # found at the end, and while printing
def test_a_reader_that_has_had_enough(lines: int) -> None:
    code = (
        "from paperformer.training.console.input_error import one_line_errors\n"
        f"with one_line_errors():\n    for line in range({lines}): print(line)"
    )
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-c", code]
    process = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, "")


def test_a_closed_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with one_line_errors():
        pass
