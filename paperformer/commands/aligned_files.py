"""Files for scoring, of which line n of one belongs to line n of the others: sources, references, outputs."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..training.console.input_error import InputError
from ..training.data.readers.alignment import first_lost_line
from ..training.data.readers.sources import Source, pair_reader
from ..training.data.text.bad_lines import BadLines
from ..training.data.text.lines import blocks, decode_lines, read_lines

References = str | list[str]
"""A file, or several."""


def read_pairs(
    text: str, reference: References | None, languages: tuple[str, str]
) -> tuple[list[str], list[list[str]]]:
    """The sources, and one or more streams of references.

    Args:
        text: the file of the sources, or without references a file of pairs.
        reference: the file of the references, or several.
        languages: codes of both, by which a header of a file of pairs names its columns.

    Raises:
        InputError: if a file cannot be read, if files have different numbers of lines, or for a sentence without a
            reference.
    """
    if reference is None:
        columns = {"source": list[str](), "target": list[str]()}
        try:
            reader = pair_reader(Source(path=text), *languages)
        except InputError as error:
            hint = "; if it has the sources alone, give --reference" if Path(text).is_file() else ""
            raise InputError(f"{error}{hint}") from error
        for chunk in reader.chunks(BadLines()):
            for name, lines in columns.items():
                lines += chunk.column(name).to_pylist()
        _check_references([Path(text)], [columns["target"]])
        return columns["source"], [columns["target"]]
    sources = [line or "" for line in read_lines(Path(text))]
    return sources, read_references(reference, (Path(text), sources))


def read_references(reference: References, others: tuple[Path, list[str]]) -> list[list[str]]:
    """Streams of references, as long as the lines of another file that they belong to; raises as `read_pairs`."""
    paths = [Path(path) for path in ([reference] if isinstance(reference, str) else reference)]
    if not paths:
        raise InputError("--reference is an empty list; it must name a file of references")
    streams = [[line or "" for line in read_lines(path)] for path in paths]
    for path, stream in zip(paths, streams, strict=True):
        check_same_count((path, stream), others)
    _check_references(paths, streams)
    return streams


def _check_references(paths: Sequence[Path], streams: Sequence[Sequence[str]]) -> None:
    for number, lines in enumerate(zip(*streams, strict=True), start=1):
        if not any(line.strip() for line in lines):
            raise InputError(
                f"{', '.join(map(str, paths))}, line {number:,}: there is no reference; every sentence needs one"
            )


def check_same_count(one: tuple[Path, Sequence[str]], other: tuple[Path, Sequence[str]]) -> None:
    """Raises an `InputError` if two files have different numbers of lines, or none."""
    for path, lines in (other, one):
        if not lines:
            raise InputError(f"{path} is empty; it must have text, a line at least")
    if len(one[1]) != len(other[1]):
        lengths = [np.fromiter(map(len, lines), np.int32) for _, lines in (other, one)]
        raise InputError(
            f"{other[0]} has {len(other[1]):,} lines and {one[0]} has {len(one[1]):,}; line n of one must belong to "
            f"line n of the other, which it does no more probably from line {first_lost_line(*lengths):,} on (an "
            "estimate from the lengths of the lines)"
        )


def read_outputs(path: Path) -> list[str]:
    """Translations, one a line, or in .jsonl a JSON string a line; - is standard input.

    Raises:
        InputError: if the file cannot be read, or a line is no JSON string.
    """
    is_piped = str(path) == "-"
    read = decode_lines(blocks(sys.stdin.buffer), "standard input") if is_piped else read_lines(path)
    lines = [line or "" for line in read]
    if path.suffix != ".jsonl":
        return lines
    outputs = []
    for number, line in enumerate(lines, start=1):
        try:
            output = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number:,} is no JSON: {error}") from error
        if not isinstance(output, str):
            raise InputError(f"{path}, line {number:,} is no JSON string; it must be a translation in quotes")
        outputs.append(output)
    return outputs


def system_name(path: str) -> str:
    """What a file of outputs is called in tables: of a run's, the run."""
    file = Path(path).absolute()
    if path == "-":
        return "standard input"
    return file.parent.parent.name if file.name == "test.outputs.jsonl" else file.stem
