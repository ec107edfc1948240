"""Translating a file of records: tables, JSON Lines, XLIFF, translation memories."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ...training.console.progress import ProgressBar, is_first_process, say
from ...training.data.text.files import open_binary
from ...translation.formats.file_formats import UNITS, read_records
from ...translation.formats.names import FormatName, FormatOptions
from ...translation.formats.record_output import RecordFile, RecordOutput
from ...translation.formats.records import Outcome, Record, Translate, translate_records
from ...translation.line_source import ReadAhead, open_standard_input
from .written_lines import NotesOfLines


def count_records(name: str, found: FormatName, options: FormatOptions) -> int | None:
    """How many records a file has; None of standard input. So all of it is looked at before anything is translated.

    Raises:
        InputError: if it cannot be read, or is not what it is said to be.
    """
    return None if name == "-" else sum(1 for _ in _records_of(name, found, options))


def translate_file(
    load: Callable[[], Translate],
    name: str,
    found: FormatName,
    options: FormatOptions,
    open_output: Callable[[], RecordFile | RecordOutput],
    skip: Callable[[ReadAhead[Any], int], None],
) -> None:
    """Translates the records of a file, and says what came of them.

    Args:
        load: loads the model, when the file has been found to be good.
        name: of the file; `-` is standard input.
        found: its format.
        options: what is said of it.
        open_output: where they go.
        skip: passes over records that an earlier command has written.

    Raises:
        InputError: as `count_records` does, or if the output cannot be written.
    """
    total = count_records(name, found, options)
    translate = load()
    note, outcome = NotesOfLines(), Outcome()
    with open_output() as written:
        records = ReadAhead(_records_of(name, found, options), lambda record: 4 * record.size + 400)
        bar = ProgressBar(
            total=total, initial=written.done, desc="translate", unit=f" {UNITS[found]}", disable=not is_first_process()
        )
        with bar, closing(records):
            skip(records, written.done)
            for content, count in translate_records(translate, records, note, outcome):
                written.write_records(content, count)
                bar.update(count)
    note.close()
    say(outcome.describe(UNITS[found]))


def _records_of(name: str, found: FormatName, options: FormatOptions) -> Iterator[Record]:
    """The file is open in here only: what goes wrong with a translation is not taken for a fault of the input."""
    source = open_standard_input() if name == "-" else _open_file(name)
    with source as read:
        yield from read_records(read, name, found, options)


@contextmanager
def _open_file(name: str) -> Iterator[Callable[[int], bytes]]:
    with open_binary(Path(name)) as file:
        yield file.read
