"""What `paperformer translate` can do besides one best translation a line."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ...training.console.input_error import InputError
from ..loading import Dtype

if TYPE_CHECKING:
    from ...api.translators import Work
    from ...translation.line_output import RecordOf
    from ...translation.line_source import Line


class Searching(TypedDict, total=False):
    """How translations are searched for, and what is told of them.

    Args:
        n_best: Write so many translations of each line, best first, with their scores; at most num_beams.
        n_best_format: Format of that: moses (the default; line from 0 ||| translation ||| score, a line each) or json
            (a JSON object a line, with log-probabilities).
        ensemble: Other models that write together with the first, with commas between; all have one tokenizer. The mean
            of their probabilities decides.
        mbr: Draw so many samples and take the one that is most like all (minimum Bayes risk, by chrF), instead of beam
            search; 32 is usual.
        epsilon: The least probability of a token that is sampled, by default 0.02; 0 samples from all.
        seed: Seed of the samples, by default 1.
        target_prefix: What every translation begins with.
        target_prefixes: What each translation begins with; a file with a line for each line of the input, or - if it
            stands behind the last tab of each line of the input itself.
        glossary: File of terms that have a fixed translation; a term, a tab and its translation a line.
        alignment: Write behind ||| which words belong together, as 0-0 1-2 (source-translation, from 0).
        alignment_layer: The layer of the decoder whose attention decides that, from 0, by default the last but one.
        src_lang: Of a model that knows many languages (M2M100, NLLB, mBART): the code of the one that is translated, as
            the model calls it: en, eng_Latn or en_XX.
        tgt_lang: And of the one that it is translated into.
        dtype: What the model is computed in: float32, bfloat16, or on a CPU int8, which paperformer check --dtype
            compares with float32; by default as its weights are stored.
        processes: How many processes translate, each a part of the text; on several GPUs each on one of its own.
        engine: What computes, torch if not given; MODEL is an export for another, or a model's folder, of which a cache
            then has an export.
    """

    n_best: int
    n_best_format: Literal["moses", "json"]
    ensemble: str
    mbr: int
    epsilon: float
    seed: int
    target_prefix: str
    target_prefixes: str
    glossary: str
    alignment: bool
    alignment_layer: int
    src_lang: str
    tgt_lang: str
    dtype: Dtype
    processes: int
    engine: Literal["torch", "ctranslate2", "onnx"]


FOR_LINES = ("n_best", "n_best_format", "alignment", "alignment_layer", "target_prefix", "target_prefixes")
"""Options that make of a line more, or other, than its translation."""


def refuse_searching(searching: Searching, name: str, kind: str) -> None:
    """Raises InputError if something is wanted that a file has no place for."""
    for option in FOR_LINES:
        if option in searching:
            raise InputError(
                f"--{option} is for lines of text, and {name} is {kind}; leave it out, or give --format text"
            )


def models_of(searching: Searching) -> list[str]:
    """The other models of an ensemble.

    Raises:
        InputError: if one of them has no name.
    """
    if not (given := searching.get("ensemble")):
        return []
    names = [name.strip() for name in given.strip("[]").split(",")]
    if not all(names):
        raise InputError(f"ensemble is {given}; it must be models with commas between")
    return names


def loading_of(searching: Searching) -> dict[str, Any]:
    """How a model is loaded, as `load_translator` takes it."""
    from ...api.translators import LOADING

    return {name: value for name, value in searching.items() if name in LOADING}


def files_of(searching: Searching) -> dict[str, list[str]]:
    """What decides about translations and lies elsewhere: models, and files."""
    files = {name: [str(searching[name])] for name in ("glossary", "target_prefixes") if name in searching}
    return files | ({"ensemble": models_of(searching)} if "ensemble" in searching else {})


def record_of(searching: Searching) -> "RecordOf | None":
    """Which line of the input a line of the output belongs to, where there may be several for one."""
    from ...decoding.n_best import line_of_n_best

    return line_of_n_best if "n_best" in searching and searching.get("n_best_format") != "json" else None


def work_of(
    num_beams: int, length_penalty: float, prefix: str, searching: Searching
) -> "tuple[Work, Callable[[int, Any], str]]":
    """What is to be made of each line, and how that is written.

    Raises:
        InputError: for a value out of its range, or options that exclude each other.
    """
    from ...api.translators import plain_work, read_search, searching_work
    from ...translation.streaming import as_text

    n_best, kind = searching.get("n_best"), searching.get("n_best_format")
    if kind is not None and n_best is None:
        raise InputError(f"n_best_format is {kind}, and there is no n_best; give --n_best 1 or more")
    if "target_prefix" in searching and "target_prefixes" in searching:
        raise InputError("target_prefix and target_prefixes are both given; leave one of them out")
    is_prefixed = "target_prefix" in searching or "target_prefixes" in searching
    engine = searching.get("engine", "torch")
    search = read_search(num_beams, length_penalty, prefix, n_best, {**searching, "target_prefix": is_prefixed})
    if engine != "torch" and (search is not None or searching.get("processes", 1) > 1 or models_of(searching)):
        raise InputError(
            f"--engine {engine} finds one best translation of each line, in one process; use torch for more"
        )
    if search is None:
        plain = {"num_beams": num_beams, "length_penalty": length_penalty, "prefix": prefix}
        return plain_work(show_progress=False, **plain), as_text
    from ...decoding.n_best import as_json, as_line, as_n_best

    written = as_line if n_best is None else as_json if kind == "json" else as_n_best
    return searching_work(search, with_prefixes=is_prefixed, show_progress=False), written


def with_target_prefixes(lines: "Iterator[Line]", searching: Searching) -> "Iterator[Line]":
    """Lines, with what their translations begin with behind a tab, if that is not in them already.

    Raises:
        InputError: if the file of the prefixes cannot be read, or has fewer or more lines.
    """
    from dataclasses import replace

    from ...api.translators import with_prefix

    name = searching.get("target_prefixes")
    if name is not None and name != "-":
        yield from beside(lines, name)
    elif (prefix := searching.get("target_prefix")) is not None:
        yield from (replace(line, text=with_prefix(line.text, prefix)) for line in lines)
    else:
        yield from lines


def beside(lines: "Iterator[Line]", name: str) -> "Iterator[Line]":
    """Lines, with the line of a file that belongs to each behind a tab.

    Raises:
        InputError: if the file cannot be read, or has fewer or more lines.
    """
    from dataclasses import replace

    from ...translation.line_source import lines_of_file

    others, number = lines_of_file(Path(name)), 0
    for number, line in enumerate(lines, start=1):
        if (other := next(others, None)) is None:
            raise InputError(f"{name} has {number - 1:,} lines and the input has more; each line must have one")
        yield replace(line, text=f"{line.text}\t{other.text}", faults=line.faults + other.faults)
    if next(others, None) is not None:
        raise InputError(f"{name} has more lines than the input, which has {number:,}; each must belong to one")
