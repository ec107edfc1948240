"""The languages that a source of sentence pairs names itself: in its columns, or in the endings of its files."""

import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from babel import Locale

from ..text.bad_lines import BadLines
from ..text.files import COMPRESSIONS, find_file, open_binary, without_compression
from ..text.lines import read_lines
from .sources import Source

_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{2,4})?")


def is_language(code: str) -> bool:
    """Whether a text is the code of a language that Unicode CLDR has a name for: `is`, `pt_BR`, `sr-Latn`."""
    known: Any = Locale("en").languages
    return _CODE.fullmatch(code) is not None and re.split("[-_]", code)[0].lower() in known


def find_languages(source: Source) -> list[str]:
    """The codes that a source names, in its own order; none if it names none, or if that would take reading it whole.

    They are the names of a table's columns, the keys of JSON objects, or the endings of parallel files.

    Raises:
        InputError: if the file cannot be read.
    """
    if source.columns is not None:
        return [column for column in source.columns if isinstance(column, str) and is_language(column)]
    if source.path is None or source.target_path is not None:
        return []
    path = Path(source.path).expanduser()
    ending = f".{source.format}" if source.format else without_compression(path).suffix.lower()
    if ending in (".tsv", ".csv", ".jsonl", ".parquet"):
        return [name for name in _column_names(path, ending) if is_language(name)]
    return _endings(path)


def _column_names(path: Path, ending: str) -> list[str]:
    """The names of the columns of a table; of one without a header, what is in its first row."""
    file = find_file(path)
    if ending == ".parquet":
        with open_binary(file) as content:
            return list(pq.read_schema(content).names)
    first = next(islice(read_lines(file, BadLines(skip=True)), 1), None) or ""
    if ending == ".jsonl":
        try:
            return list(map(str, json.loads(first)))
        except (ValueError, TypeError):  # which its reader complains of
            return []
    return [name.strip().strip('"') for name in first.split("\t" if ending == ".tsv" else ",")]


def _endings(prefix: Path) -> list[str]:
    """What follows the prefix in the names of parallel files, in alphabetical order."""
    endings = {
        without_compression(path).name.removeprefix(f"{prefix.name}.")
        for path in prefix.parent.glob(f"{prefix.name}.*")
        if path.suffix in COMPRESSIONS or path.is_file()
    }
    return sorted(filter(is_language, endings))
