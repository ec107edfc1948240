"""Lines out for lines in: where they go, what is noted about them, and how far it is."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...training.console.input_error import InputError
from ...training.console.progress import ProgressBar, is_first_process, say

if TYPE_CHECKING:
    from ...translation.cutting import Notes
    from ...translation.line_output import OutputFile, RecordOf, StandardOutput
    from ...translation.line_source import Line, ReadAhead
    from ...translation.streaming import Written

NOTES_SHOWN = 10


class NotesOfLines:
    """Says what is odd about the first lines, and counts the others."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, number: int, what: str) -> None:
        """Takes note of a line."""
        self._count += 1
        if self._count <= NOTES_SHOWN:
            say(f"line {number:,}: {what}")

    def close(self) -> None:
        """Says how many there were, if not all were said."""
        if self._count > NOTES_SHOWN:
            say(f"{self._count:,} such notes in all")


def work_on_lines(
    work: "Callable[[Sequence[str], Notes], Sequence[Any]]",
    lines: "ReadAhead[Line]",
    written: "Written",
    file: "OutputFile | StandardOutput",
    total: int | None,
    *,
    is_shown: bool,
    described: str,
    unit: str = " lines",
) -> None:
    """Writes what is made of the lines, and says what had to be done with them.

    Args:
        work, lines, written: as `translate_stream` takes them.
        file: where it is written.
        total: lines that there are, if that is known.
        is_shown: whether a bar shows how far it is, wherever the lines go.
        described, unit: what the bar says.
    """
    from ...translation.streaming import translate_stream

    note = NotesOfLines()
    is_shown = is_shown or not sys.stdout.isatty()  # or else the lines themselves show how far it is
    bar = ProgressBar(
        total=total,
        initial=file.done,
        desc=described,
        unit=unit,
        disable=not (is_shown and is_first_process()),
    )
    with bar:
        for outputs in translate_stream(work, lines, note, written):
            file.write(outputs)
            bar.update(len(outputs))
    note.close()


def write_to(
    name: str,
    request: dict[str, Any],
    overwrite: bool,
    others: Mapping[str, Sequence[str]] = {},
    record_of: "RecordOf | None" = None,
) -> "OutputFile | StandardOutput":
    """Where lines go.

    Args:
        request: what decides about them; of the files that it names, which they were is kept as well.
        others: the names of further files, or of models' folders.
        record_of: as `OutputFile` takes it.
    """
    from ...translation.line_output import OutputFile, StandardOutput

    if name == "-":
        return StandardOutput()
    return OutputFile(Path(name), with_files(request, others), overwrite=overwrite, record_of=record_of)


def with_files(request: dict[str, Any], others: Mapping[str, Sequence[str]] = {}) -> dict[str, Any]:
    """A request, with which files it names: those of model and input, and others."""
    named = {"model": [request["model"]], "input": [request["input"]], **others}
    return request | {
        "files": {what: [stamp for path in paths for stamp in _stamp(Path(path))] for what, paths in named.items()}
    }


def skip(lines: "ReadAhead[Any]", count: int, output: str) -> None:
    """Passes over lines that an earlier command has translated."""
    while count > 0:
        passed = len(lines.take(count))
        if not passed:
            raise InputError(f"{output}.part has more lines than there are to translate; --overwrite true begins anew")
        count -= passed


def _stamp(path: Path) -> list[list[Any]]:
    """Name, size and time of a file, or of the weights in a folder; nothing of what lies elsewhere."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    return [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
