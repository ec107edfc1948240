"""The sentences of a scored test split that tell most: the worst and the best, and where two systems differ most."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..evaluation.metrics import BITS_PER_BYTE, LOSS
from ..evaluation.scored_split import ScoredSplit
from ..evaluation.translation_report import score_sentences
from .side_by_side import mark_words

SHOWN = 15
"""Sentences at each end."""

PASSAGES_SHOWN = 6
"""The same, of passages, which are longer."""

LONGEST = 4000
"""Characters of a text that are shown."""

Words = list[tuple[str, bool]]
"""Words, and of each whether the text beside it has it too."""


@dataclass(frozen=True)
class Shown:
    """A sentence or a passage."""

    line: int
    """From 1."""

    texts: Sequence[tuple[str, Words]]
    """(what it is, its words): source, reference and outputs of a translation; a passage."""

    values: Sequence[str]
    """Scores, of two systems and their difference behind them."""


@dataclass(frozen=True)
class Sentences:
    """Groups of them, and what their scores are."""

    groups: dict[str, list[Shown]]
    columns: Sequence[str]
    """Titles of `values`."""

    count: int
    """Of all sentences that these are from."""

    unit: str
    """What they are: `sentences`."""


def find_extremes(split: ScoredSplit, count: int = SHOWN) -> Sentences | None:
    """The worst and the best sentences or passages; None where they were not kept.

    Of those that are equally good, the longer are more worth reading.
    """
    if split.pairs:
        values, columns, unit = _score(split, split), ["chrF"], "sentences"
        costs = [-value for value in values]
        texts: Sequence[str] = [reference for _, reference in split.pairs]
        show = _show_translation([split], ["output"], [values])
    elif split.texts:
        values, title = _losses(split)
        costs, texts, columns, unit = values, split.texts, [title], "passages"
        show = _show_passage(split, [values])
    else:
        return None
    count = min(count, PASSAGES_SHOWN) if split.texts else count
    worst = sorted(range(len(costs)), key=lambda index: (-costs[index], -len(texts[index])))
    best = sorted(range(len(costs)), key=lambda index: (costs[index], -len(texts[index])))
    some = min(count, (len(costs) + 1) // 2)
    groups = {"The worst": worst[:some], "The best": best[: min(some, len(costs) - some)]}
    return Sentences({title: list(map(show, places)) for title, places in groups.items()}, columns, len(costs), unit)


def find_differences(
    baseline: ScoredSplit, system: ScoredSplit, names: tuple[str, str], count: int = SHOWN
) -> Sentences | None:
    """Where two systems differ most, to either side; None where not the same was scored, or it was not kept.

    Args:
        names: of baseline and system.
    """
    splits = [baseline, system]

    def agree(name: str) -> bool:
        return name in system.entry and baseline.entry.get(name) == system.entry[name]

    if system.pairs and baseline.outputs and agree("pairs_sha256"):
        values, title, unit, sign = [_score(split, system) for split in splits], "chrF", "sentences", 1
        show = _show_translation(splits, names, values)
    elif system.texts and baseline.losses and agree("passages_sha256"):
        values, title, unit, sign = [_losses(split)[0] for split in splits], _losses(system)[1], "passages", -1
        show = _show_passage(system, values)
    else:
        return None
    gains = [sign * (after - before) for before, after in zip(*values, strict=True)]
    count = min(count, PASSAGES_SHOWN) if unit == "passages" else count
    order = sorted(range(len(gains)), key=lambda index: gains[index])
    groups = {
        f"{names[1]} is better": [index for index in order[::-1][:count] if gains[index] > 0],
        f"{names[0]} is better": [index for index in order[:count] if gains[index] < 0],
    }
    columns = [*(f"{title}, {name}" for name in names), "Difference"]
    return Sentences({title: list(map(show, places)) for title, places in groups.items()}, columns, len(gains), unit)


def _score(split: ScoredSplit, scored: ScoredSplit) -> list[float]:
    """chrF of each output, by the references and the options of what was scored."""
    references = [reference for _, reference in scored.pairs]
    return [scores["chrf"] for scores in score_sentences(split.outputs, [references], scored.options, ("chrf",))]


def _losses(split: ScoredSplit) -> tuple[list[float], str]:
    """Of each passage, its loss; in bits a byte, which do not depend on the tokens, where bytes are known."""
    assert split.losses is not None
    losses = split.losses
    if losses.bytes is None:
        return (losses.nats / np.maximum(1, losses.tokens)).tolist(), LOSS.label
    return (losses.nats / np.log(2) / np.maximum(1, losses.bytes)).tolist(), BITS_PER_BYTE.label


def _show_translation(
    splits: Sequence[ScoredSplit], names: Sequence[str], values: Sequence[Sequence[float]]
) -> Callable[[int], Shown]:
    """Shows a translation: marked are words of outputs that the reference has not, and where there is one output, words
    of the reference that it has not."""
    pairs = splits[-1].pairs

    def show(index: int) -> Shown:
        source, reference = (_shorten(text) for text in pairs[index])
        outputs = [_shorten(split.outputs[index]) for split in splits]
        marked = mark_words(reference, outputs[0]) if len(outputs) == 1 else _plain(reference)
        texts = [("source", _plain(source)), ("reference", marked)]
        texts += [(name, mark_words(output, reference)) for name, output in zip(names, outputs, strict=True)]
        return Shown(index + 1, texts, _shown_values([own[index] for own in values], 1))

    return show


def _show_passage(split: ScoredSplit, values: Sequence[Sequence[float]]) -> Callable[[int], Shown]:
    def show(index: int) -> Shown:
        text = _shorten(split.texts[index])
        return Shown(index + 1, [("text", [(text, True)])], _shown_values([own[index] for own in values], 3))

    return show


def _shown_values(values: Sequence[float], digits: int) -> list[str]:
    shown = [f"{value:.{digits}f}" for value in values]
    return [*shown, f"{values[1] - values[0]:+.{digits}f}"] if len(values) == 2 else shown


def _plain(text: str) -> Words:
    return [(text, True)]


def _shorten(text: Any) -> str:
    text = str(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
