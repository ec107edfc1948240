"""How good a model is on each kind of text that its test set has, and where it is worse than on the whole.

All intervals and tests are of one stratified bootstrap: 1,000 times as many sentences are drawn from each domain, with
replacement, as it has (Efron and Tibshirani 1993, section 8.3).
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.significance import estimate_ci

from ..console.progress import ProgressBar
from .confidence import RESAMPLES, SEED, Confidence
from .metrics import BITS_PER_BYTE, METRICS, Metric, References, Score, ScoringOptions
from .passages import PassageLosses
from .significance import SIGNIFICANT

FEWEST = 20
"""Of fewer sentences or passages the bootstrap says too little."""

MOST = 12
"""Domains that are scored one by one; a table of more is not read."""

Compute = Callable[[NDArray[np.floating]], float]
"""Sums over sentences -> a score."""


@dataclass(frozen=True, kw_only=True)
class DomainScores:
    """Of the sentences or passages of one domain, or of another part of the test set."""

    name: str
    scores: Sequence[Score]
    """With intervals, unless it is the only domain. What compares it with the whole is the last."""

    p_worse: float | None
    """The probability of a score so much below that of the whole, were it none in truth; times the number of domains
    (Bonferroni). None if it is the only one, or has too little text to tell."""

    unseen_words: float | None = None
    """The share of its words, of the sources, that are not in the training text."""

    @property
    def is_worse(self) -> bool:
        """Whether that is hardly chance."""
        return self.p_worse is not None and self.p_worse < SIGNIFICANT


def gather_others(domains: Sequence[str]) -> list[str]:
    """The domains of N sentences; where there are more than `MOST`, the smaller ones as one, which says how many."""
    counts = Counter(domains)
    if len(counts) <= MOST:
        return list(domains)
    largest = {name for name, _ in counts.most_common(MOST - 1)}
    others = f"{len(counts) - len(largest):,} others together"
    return [name if name in largest else others for name in domains]


def score_domains(
    hypotheses: Sequence[str],
    references: References,
    domains: Sequence[str],
    options: ScoringOptions | None = None,
    resamples: int = RESAMPLES,
) -> list[DomainScores]:
    """BLEU and chrF of the outputs for the sentences of each domain.

    Args:
        hypotheses: N outputs.
        references: streams of N references.
        domains: of each of the N, its name.
        options: how outputs and references are compared.
        resamples: of the bootstrap.
    """
    options = replace(options or ScoringOptions(), warn=False)
    names, places = _places(domains)
    columns: list[tuple[list[Score], list[float | None]]] = []
    for metric in (METRICS["bleu"], METRICS["chrf"]):
        assert metric.make is not None
        scorer = metric.make(options)
        statistics = np.array(scorer._extract_corpus_statistics(hypotheses, references), dtype=np.float32)

        def compute(sums: NDArray[np.floating], scorer: Any = scorer) -> float:
            return float(scorer._compute_score_from_stats(sums).score)

        counts = [len(own) for own in places]
        signature = str(scorer.get_signature())
        columns.append(_scores(metric, statistics, places, compute, counts, signature, resamples))
    return [
        DomainScores(name=name, scores=[scores[number] for scores, _ in columns], p_worse=columns[-1][1][number])
        for number, name in enumerate(names)
    ]


def score_domains_of_text(
    losses: PassageLosses, domains: Sequence[str], resamples: int = RESAMPLES
) -> list[DomainScores]:
    """Bits a byte of the passages of each domain.

    Args:
        losses: of N passages, whose bytes are known.
        domains: of each of the N, its name.
        resamples: of the bootstrap.
    """
    assert losses.bytes is not None
    names, places = _places(domains)
    statistics = np.stack([losses.nats, losses.bytes], axis=1)

    def compute(sums: NDArray[np.floating]) -> float:
        return float(sums[0] / math.log(2) / max(1, sums[1]))

    counts = [int(losses.bytes[own].sum()) for own in places]
    scores, p_values = _scores(BITS_PER_BYTE, statistics, places, compute, counts, "", resamples)
    return [
        DomainScores(name=name, scores=[score], p_worse=p_value)
        for name, score, p_value in zip(names, scores, p_values, strict=True)
    ]


def _places(domains: Sequence[str]) -> tuple[list[str], list[NDArray[np.int64]]]:
    """The domains in the order in which they first occur, and the places of each."""
    names = list(dict.fromkeys(domains))
    labels = np.array(domains)
    return names, [np.flatnonzero(labels == name) for name in names]


def _scores(
    metric: Metric,
    statistics: NDArray[np.floating],
    places: Sequence[NDArray[np.int64]],
    compute: Compute,
    counts: Sequence[int],
    signature: str,
    resamples: int,
) -> tuple[list[Score], list[float | None]]:
    """The score of each of D domains, and whether it is worse than that of all.

    Args:
        statistics: numbers of each of N sentences, (N, k).
        places: those of each domain.
        counts: what the score of each is over.
    """
    values = [compute(statistics[own].sum(0)) for own in places]
    confidences: list[Confidence | None] = [None] * len(places)
    p_values: list[float | None] = [None] * len(places)
    if len(places) > 1:
        drawn = _resampled(statistics, places, compute, resamples)
        costs = metric.cost(1.0) * drawn  # (resamples, D + 1), small is good
        for number, own in enumerate(places):
            mean, half_width = estimate_ci(drawn[:, number])
            confidences[number] = Confidence(mean=float(mean), half_width=float(half_width), resamples=resamples)
            if len(own) >= FEWEST:
                not_worse = int((costs[:, number] <= costs[:, -1]).sum())
                p_values[number] = min(1.0, len(places) * (not_worse + 1) / (resamples + 1))
    scores = [
        Score(metric=metric, value=value, count=count, signature=signature, confidence=confidence)
        for value, count, confidence in zip(values, counts, confidences, strict=True)
    ]
    return scores, p_values


def _resampled(
    statistics: NDArray[np.floating], places: Sequence[NDArray[np.int64]], compute: Compute, resamples: int
) -> NDArray[np.float64]:
    """Scores of each domain and, last, of all together, in each resample: (resamples, D + 1)."""
    rng = np.random.default_rng(SEED)
    drawn = np.empty((resamples, len(places) + 1))
    with ProgressBar(range(resamples), desc="resample", unit=" resamples") as bar:
        for index in bar:
            sums = [statistics[rng.choice(own, size=len(own))].sum(0) for own in places]
            drawn[index] = [compute(part) for part in (*sums, np.sum(sums, axis=0))]
    return drawn
