"""The text by which an export is compared with the model: given, of the model's own run, or made up."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import yaml

from ..training.console.input_error import InputError
from ..training.data.corpus import Corpus
from ..training.data.text.lines import read_lines
from .export_file import ExportFile
from .formats.format import Exportable

LONGEST_WINDOW = 128
"""Tokens of running text that are compared at once."""
RANDOM = 8
"""Sequences of random tokens."""
PROMPT = 8
"""Tokens of each window that a language model goes on from."""
TEST_ROWS = 1000
"""Pairs, or pieces of running text, that are read of a test split."""


@dataclass(frozen=True)
class Sample:
    """Sequences that two engines are given."""

    origin: str
    """Where they come from, for the table."""
    inputs: list[list[int]]
    outputs: list[list[int]]
    """What follows each: a reference, the rest of a text; empty where that is not known, and of an encoder."""
    references: list[str] | None = None
    """Raw, of each input."""
    is_written: bool = True
    """Whether people wrote it: how likely random tokens are, or what the model itself has put out, says nothing."""

    def first(self, count: int) -> "Sample":
        """The first few."""
        references = None if self.references is None else self.references[:count]
        return replace(self, inputs=self.inputs[:count], outputs=self.outputs[:count], references=references)


def sample_of(
    exportable: Exportable,
    facts: ExportFile,
    model: str,
    text: Path | None,
    references: Sequence[str] | None,
    *,
    of_test: bool = False,
) -> Sample:
    """The text for a comparison.

    Args:
        exportable: the model and its tokenizers.
        facts: of its configuration.
        model: its folder, or its name on the Hub.
        text: a file given for it: sentences to translate, running text; None: what the model's run has left in its
            evaluation folder, or else random tokens.
        references: raw translations of the lines of `text`.
        of_test: whether to prefer the run's test text, if none is given, where the cache of its data still has it.

    Raises:
        InputError: if there is not a reference for each line, or the text is empty.
    """
    if text is None:
        run = Path(model).resolve().parent
        if of_test and Path(model).is_dir() and (found := _sample_of_test(exportable, facts, run)):
            return found
        samples = run / "evaluation" / "samples.jsonl"
        if Path(model).is_dir() and samples.is_file() and (found := _sample_of_run(exportable, facts, samples)):
            return found
        return _random_sample(exportable, facts)
    lines = [line or "" for line in read_lines(text)]
    if references is not None and len(references) != len(lines):
        raise InputError(f"{text} has {len(lines)} lines, and there are {len(references)} references; each needs one")
    if facts.family == "lm":
        return _windows(exportable, facts, "\n".join(lines), str(text))
    pairs = list(zip(lines, references or [""] * len(lines), strict=True))
    pairs = [(line, reference) for line, reference in pairs if line.strip()]
    if not pairs:
        raise InputError(f"{text} has no text; give a file of sentences, one a line")
    sources, raw = [line for line, _ in pairs], [reference for _, reference in pairs]
    return _sentences(exportable, facts, sources, raw, str(text), references is not None)


def _sentences(
    exportable: Exportable,
    facts: ExportFile,
    sources: list[str],
    references: list[str],
    origin: str,
    has_references: bool,
) -> Sample:
    limit = {"truncation": True, "max_length": facts.longest}
    inputs = [list(ids) for ids in exportable.tokenizer(sources, **limit).input_ids]
    outputs: list[list[int]] = [[] for _ in inputs]
    if has_references and facts.family == "seq2seq":
        ids = exportable.output_tokenizer(references, truncation=True, max_length=facts.longest - 1).input_ids
        outputs = [[token for token in row if token not in facts.end_ids] for row in ids]
    return Sample(origin, inputs, outputs, references if has_references else None)


def _windows(exportable: Exportable, facts: ExportFile, text: str, origin: str) -> Sample:
    """Running text in windows that each begin as a text does."""
    ids = exportable.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    start = [] if facts.start_id is None else [facts.start_id]
    length = min(LONGEST_WINDOW, facts.longest) - len(start)
    windows = [ids[place : place + length] for place in range(0, len(ids), length)]
    windows = [window for window in windows if len(window) > PROMPT]
    if not windows:
        raise InputError(f"{origin} has {len(ids)} tokens; more than {PROMPT} are needed")
    return Sample(origin, [[*start, *window[:PROMPT]] for window in windows], [window[PROMPT:] for window in windows])


def _sample_of_test(exportable: Exportable, facts: ExportFile, run: Path) -> Sample | None:
    """What a run was tested on, read from the cache of its data; None where that has been deleted, or is of a task in
    which text is changed before it is given to the model."""
    try:
        recipe = yaml.safe_load((run / "recipe.yaml").read_text("utf-8"))
        data = json.loads((run / "data.json").read_text("utf-8"))
        cache = Path(recipe["data"]["cache_dir"] or run.parent / ".cache").expanduser()
        rows = list(islice(Corpus(cache / data["test"]["folder"]).dataset, TEST_ROWS))
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None
    if facts.family == "seq2seq":
        if not rows or "target" not in rows[0]:
            return None
        sources, references = [row["source"] for row in rows], [row["target"] for row in rows]
        return _sentences(exportable, facts, sources, references, "the run's test set", True)
    texts = [row["text"] for row in rows]
    if facts.family == "encoder":
        lines = [line for text in texts for line in text.splitlines() if line.strip()]
        return _sentences(exportable, facts, lines, [""] * len(lines), "the run's test text", False) if lines else None
    try:
        return _windows(exportable, facts, "".join(texts), "the run's test text")
    except InputError:
        return None


def _sample_of_run(exportable: Exportable, facts: ExportFile, path: Path) -> Sample | None:
    """What a run has left of its test set: sources, references and outputs, or prompts and continuations."""
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        if not rows or not all(isinstance(cell, str) for row in rows for cell in row):
            return None
    except (OSError, ValueError):
        return None
    if facts.family == "lm":
        try:
            text = "\n".join("".join(row) for row in rows)
            return replace(_windows(exportable, facts, text, "the run's samples"), is_written=False)
        except InputError:
            return None
    translated = facts.family == "seq2seq" and all(len(row) == 3 for row in rows)
    sources, references = [row[0] for row in rows], [row[1] if translated else "" for row in rows]
    return _sentences(exportable, facts, sources, references, "the run's samples of the test set", translated)


def _random_sample(exportable: Exportable, facts: ExportFile) -> Sample:
    """Random tokens, for a model whose texts are not known."""
    config, generator = exportable.config, np.random.default_rng(1)
    specials = {*exportable.tokenizer.all_special_ids, *exportable.output_tokenizer.all_special_ids}

    def sequences(vocabulary: int, shortest: int) -> list[list[int]]:
        usable = np.array([index for index in range(vocabulary) if index not in specials])
        lengths = generator.integers(shortest, max(shortest + 1, min(24, facts.longest // 2)), RANDOM)
        return [generator.choice(usable, length).tolist() for length in lengths]

    inputs = sequences(getattr(config, "encoder_vocab_size", config.vocab_size), 3)
    outputs = [[] for _ in inputs] if facts.family == "encoder" else sequences(config.vocab_size, 1)
    if facts.family == "seq2seq":
        inputs = [[*ids, *facts.end_ids[:1]] for ids in inputs]
    return Sample("random tokens", inputs, outputs, is_written=False)
