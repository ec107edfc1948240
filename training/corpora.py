"""Reading text: sentence pairs and running text, from the Hub, from local files, or from the package itself.

Local files are UTF-8 with one sentence (or line of text) a line; `.gz`, `.xz` and `.bz2` are decompressed. What cannot
be used is refused with an `InputError` that names the file and the line.
"""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .input_error import InputError
from .recipe import ParallelData, TextData

Pair = tuple[str, str]

_OPENERS: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_BUILT_IN = "built-in:"


def read_pairs(data: ParallelData) -> dict[str, list[Pair]]:
    """Sentence pairs (source, target) of the splits train, validation and test.

    Raises:
        InputError: if a file is missing, is not UTF-8 or is empty, or if the two sides do not match.
    """
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    if data.dataset.startswith(_BUILT_IN):
        return _built_in_pairs(data)
    if _is_local(data.dataset):
        pairs = {split: _read_pair_files(Path(data.dataset), name, data) for split, name in splits.items()}
    else:
        pairs = {split: _pairs_of_rows(_load_from_hub(data.dataset, name), data) for split, name in splits.items()}
    for split, rows in pairs.items():
        kept = [(source, target) for source, target in rows if source.strip() and target.strip()]
        if not kept:
            raise InputError(
                f"data.{split} '{splits[split]}' of {data.dataset} is empty; a pair must have text on both sides"
            )
        pairs[split] = kept
    return pairs


def read_documents(data: TextData) -> dict[str, list[str]]:
    """Documents, each one string, of the splits train, validation and test.

    Raises:
        InputError: if a file is missing, is not UTF-8 or is empty.
    """
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    if data.dataset.startswith(_BUILT_IN):
        return _built_in_documents(data)
    documents = {}
    for split, name in splits.items():
        if _is_local(data.dataset):
            text = "\n".join(_read_filled(_find(Path(data.dataset), f"{name}.txt"))) + "\n"
        else:
            rows = _load_from_hub(data.dataset, name)
            if data.text_column not in rows.column_names:
                raise InputError(
                    f"data.text_column is '{data.text_column}'; {data.dataset} has the columns {rows.column_names}"
                )
            text = "".join(rows[data.text_column])
        if not text.strip():
            raise InputError(f"data.{split} '{name}' of {data.dataset} is empty; it must have text")
        documents[split] = [text]
    return documents


def _is_local(dataset: str) -> bool:
    """A folder that exists, or a name that can only be meant as a path (so that a typing error is not looked up)."""
    path = Path(dataset)
    if path.is_file():
        raise InputError(f"data.dataset is the file {dataset}; it must be a folder that holds the splits' files")
    if path.is_dir():
        return True
    if dataset.startswith((".", "/", "~")) or dataset.count("/") > 1:
        raise InputError(f"data.dataset: there is no folder {dataset}")
    return False


def _find(folder: Path, name: str) -> Path:
    for ending in _OPENERS:
        path = folder / f"{name}{ending}"
        if path.exists():
            return path
    raise InputError(f"there is no {folder / name} (nor .gz, .xz or .bz2 of it)")


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file without their ends; `.gz`, `.xz` and `.bz2` are decompressed.

    Raises:
        InputError: if the file cannot be read or is not UTF-8; the message names the line.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; it must be a text file")
    try:
        with _OPENERS[path.suffix if path.suffix in _OPENERS else ""](path, "rb") as file:
            content = file.read()
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path} cannot be read: {reason}") from error
    return decode_lines(content, str(path))


def decode_lines(content: bytes, name: str) -> list[str]:
    """The lines of UTF-8 text without their ends.

    Raises:
        InputError: if it is not UTF-8; the message has the name and the line.
    """
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    decoded = []
    for number, line in enumerate(lines, start=1):
        try:
            decoded.append(line.removesuffix(b"\r").decode("utf-8"))
        except UnicodeDecodeError as error:
            byte = line[error.start]
            raise InputError(
                f"{name}, line {number}: byte 0x{byte:02x} at column {error.start + 1} is not UTF-8; "
                "convert the text to UTF-8"
            ) from error
    return decoded


def _read_pair_files(folder: Path, split: str, data: ParallelData) -> list[Pair]:
    tables = [folder / f"{split}.tsv{ending}" for ending in _OPENERS]
    if table := next((path for path in tables if path.exists()), None):
        return [_split_pair(line, table, number) for number, line in enumerate(_read_filled(table), start=1)]
    source, target = (_find(folder, f"{split}.{language}") for language in (data.source_language, data.target_language))
    return read_parallel(source, target)


def read_parallel(source: Path, target: Path) -> list[Pair]:
    """Pairs from two files, of which line n of one is the translation of line n of the other.

    Raises:
        InputError: if a file cannot be read, is not UTF-8 or is empty, or if they have different numbers of lines.
    """
    sources, targets = _read_filled(source), _read_filled(target)
    if len(sources) != len(targets):
        raise InputError(
            f"{source} has {len(sources):,} lines and {target} has {len(targets):,}; "
            "line n of one must be the translation of line n of the other"
        )
    return list(zip(sources, targets, strict=True))


def _read_filled(path: Path) -> list[str]:
    lines = read_lines(path)
    if not lines:
        raise InputError(f"{path} is empty; it must have text, a line at least")
    return lines


def _split_pair(line: str, path: Path, number: int) -> Pair:
    columns = line.split("\t")
    if len(columns) < 2:
        raise InputError(f"{path}, line {number}: no tab; a line must be SOURCE<tab>TARGET")
    return columns[0], columns[1]


def _load_from_hub(name: str, split: str) -> Any:
    from datasets import load_dataset  # imported where it is used: it takes over a second

    try:
        return load_dataset(name, split=split)
    except Exception as error:  # the library raises a dozen types, from ValueError to network errors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"data.dataset: there is no folder {name}, and split {split} of the data set {name} cannot be loaded from "
            f"the Hub: {reason}"
        ) from error


def _pairs_of_rows(rows: Any, data: ParallelData) -> list[Pair]:
    languages = (data.source_language, data.target_language)
    if all(language in rows.column_names for language in languages):
        return list(zip(rows[languages[0]], rows[languages[1]], strict=True))
    if "translation" in rows.column_names:
        try:
            return [(row[languages[0]], row[languages[1]]) for row in rows["translation"]]
        except KeyError as error:
            raise InputError(f"{data.dataset} has no language {error} in its column 'translation'") from error
    raise InputError(
        f"{data.dataset} has the columns {rows.column_names}; it must have {languages[0]} and {languages[1]}, "
        "or 'translation'"
    )


def _built_in_pairs(data: ParallelData) -> dict[str, list[Pair]]:
    if data.dataset != f"{_BUILT_IN}cldr":
        raise InputError(f"data.dataset is '{data.dataset}'; the built-in pairs are {_BUILT_IN}cldr")
    from .cldr import expression_pairs

    try:
        return expression_pairs(data.source_language, data.target_language)
    except ValueError as error:
        raise InputError(f"data.source_language, data.target_language: {error}") from error


def _built_in_documents(data: TextData) -> dict[str, list[str]]:
    if data.dataset != f"{_BUILT_IN}shakespeare":
        raise InputError(f"data.dataset is '{data.dataset}'; the built-in text is {_BUILT_IN}shakespeare")
    from .shakespeare import play_splits

    return play_splits()
