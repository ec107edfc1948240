"""Which format a file has, by its name or as it is said, and what has to be said of it besides."""

from collections.abc import Callable, Iterator
from pathlib import Path

from ...training.console.input_error import InputError
from ...training.data.text.files import without_compression
from .catalogues import read_messages
from .json_lines import read_json_lines
from .names import FormatName, FormatOptions
from .records import Record
from .tables import Columns, read_table
from .tmx import Tmx
from .xliff import Xliff
from .xml_units import read_units

_ENDINGS: dict[str, FormatName] = {
    ".po": "gettext",
    ".pot": "gettext",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".sdlxliff": "xliff",
    ".mqxliff": "xliff",
    ".mxliff": "xliff",
    ".tmx": "tmx",
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_TABLES = ("tsv", "csv")
_XML = ("xliff", "tmx")

UNITS = {"tsv": "rows", "csv": "rows", "jsonl": "objects", "xliff": "units", "tmx": "units", "gettext": "messages"}
"""What the records of a format are called."""


def find_format(name: str, said: FormatName | None, options: FormatOptions) -> FormatName:
    """The format of a file.

    Args:
        name: of the file; `-` is standard input.
        said: the format, where the name does not tell it.
        options: those that another format would have are refused.

    Raises:
        InputError: if an option is for another format.
    """
    ending = without_compression(Path(name)).suffix.lower()
    if said is None and ending == ".mo":
        raise InputError(f"{name} is a compiled catalogue; translate the .po file that it was made of")
    found = said or _ENDINGS.get(ending, "text")
    uses = {
        "column": _TABLES,
        "header": _TABLES,
        "field": ("jsonl",),
        "into": (*_TABLES, "jsonl"),
        "source_language": ("tmx",),
        "target_language": _XML,
    }
    for option, formats in uses.items():
        if getattr(options, option) not in ("", None) and found not in formats:
            raise InputError(
                f"--{option} is for {', '.join(formats)}, and {name} is taken for {found}; "
                "--format says what it is, if its name does not"
            )
    return found


def read_records(
    read: Callable[[int], bytes], name: str, found: FormatName, options: FormatOptions
) -> Iterator[Record]:
    """The records of a file.

    Args:
        read: gives its bytes: up to so many as soon as there are any, none at the end.
        name: of the file, for messages.
        found: its format; not text.
        options: what is said of it.

    Raises:
        InputError: if it is not of that format, or if something else would have to be said.
    """
    if found in _TABLES:
        columns = Columns(options.column, options.into or "translation", options.header)
        return read_table(read, name, found, columns)
    if found == "jsonl":
        return read_json_lines(read, name, options.field, options.into or "translation")
    if found == "gettext":
        return read_messages(read, name, options.fuzzy_below)
    if found == "xliff":
        return read_units(read, name, Xliff(name, options.target_language))
    return read_units(read, name, Tmx(name, options.target_language, options.source_language))
