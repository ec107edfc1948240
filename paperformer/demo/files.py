"""A file translated as `paperformer translate` does it, with what it says of it."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from ..api.translators import plain_work, sure_work
from ..decoding.translator import Translator
from ..training.data.text.files import open_binary, without_compression
from ..training.data.text.lines import count_lines
from ..translation.formats.catalogues import restore_encoding
from ..translation.formats.file_formats import UNITS, find_format, read_records
from ..translation.formats.names import FormatName, FormatOptions
from ..translation.formats.records import Outcome, Record, translate_records
from ..translation.line_source import ReadAhead, lines_of_file
from ..translation.streaming import translate_stream

MOST_NOTES = 20
"""That are kept; of the others only how many there are."""

Progress = Callable[[int, int | None], None]
"""Told how many of how many units are done; None: that is not known."""


class Notes:
    """What is odd about a file, by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.left_out = 0

    def __call__(self, number: int, what: str) -> None:
        if len(self.lines) < MOST_NOTES:
            self.lines.append(f"line {number:,}: {what}")
        else:
            self.left_out += 1

    def all(self) -> list[str]:
        """The notes, and at the end how many there are besides."""
        return self.lines + ([f"and {self.left_out:,} more"] if self.left_out else [])


def output_name(name: str) -> str:
    """What the translated file is called: `app.translated.po` of `app.po.gz`."""
    path = without_compression(Path(name))
    return f"{path.stem}.translated{path.suffix}"


def translate_file(
    translator: Translator,
    path: Path,
    output: Path,
    options: FormatOptions,
    progress: Progress,
    *,
    num_beams: int = 5,
    prefix: str = "",
) -> tuple[str, list[str]]:
    """Translates a file of any format into another, by the format that its name says.

    Args:
        options: what is said of the file besides.
        num_beams, prefix: as `paperformer translate` takes them.

    Returns:
        What came of it, in a line; and what was odd about some lines.

    Raises:
        InputError: if it cannot be read, is not of its format, or needs to be said more of.
    """
    notes, found = Notes(), find_format(str(path), None, options)

    work = plain_work(num_beams=num_beams, prefix=prefix)
    translate = partial(sure_work(work, prefix) if found == "gettext" else work, translator)
    progress(0, None)
    with output.open("wb") as file:
        if found == "text":
            total, done = count_lines(path), 0
            with closing(ReadAhead(lines_of_file(path))) as lines:
                for window in translate_stream(translate, lines, notes):
                    file.write("".join(f"{line}\n" for line in window).encode())
                    progress(done := done + len(window), total)
            return f"{done:,} lines translated", notes.all()
        total, done, outcome = sum(1 for _ in _records(path, found, options)), 0, Outcome()
        with closing(ReadAhead(_records(path, found, options), lambda record: 4 * record.size + 400)) as records:
            for content, count in translate_records(translate, records, notes, outcome):
                file.write(content)
                progress(done := done + count, total)
    if found == "gettext":
        restore_encoding(path, output, output)
    return outcome.describe(UNITS[found]), notes.all()


def _records(path: Path, found: FormatName, options: FormatOptions) -> Iterator[Record]:
    with open_binary(path) as file:
        yield from read_records(file.read, path.name, found, options)
