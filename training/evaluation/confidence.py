"""How far a score would move with other sentences: bootstrap resampling (Efron 1979; for BLEU, Koehn 2004).

The figures are those of `sacrebleu --confidence`, to the last digit. sacreBLEU holds the statistics of all resamples in
memory at once, 10 GB for a test set of 100,000 sentences; here it is one resample at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import estimate_ci

from ..console.progress import ProgressBar

RESAMPLES = 1000
SEED = 12345  # sacreBLEU's


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """The 95 % interval of a score, mean ± half_width."""

    mean: float
    """Of the resamples."""

    half_width: float
    resamples: int


def bootstrap(metric: Metric, statistics: Sequence[Sequence[Any]], resamples: int = RESAMPLES) -> Confidence:
    """The interval of a score.

    Args:
        metric: one of sacreBLEU's, or of its kind.
        statistics: its numbers for each of N sentences.
        resamples: how often N sentences are drawn from them, with replacement.
    """
    rng = np.random.default_rng(SEED)
    table = np.array(statistics, dtype="float32")  # (N, numbers), in sacreBLEU's precision
    scores = np.empty(resamples)
    with ProgressBar(range(resamples), desc="resample", unit=" resamples") as bar:
        for index in bar:
            drawn = table[rng.choice(len(table), size=len(table), replace=True)]
            scores[index] = metric._compute_score_from_stats(drawn.sum(0)).score
    mean, half_width = estimate_ci(scores)
    return Confidence(mean=float(mean), half_width=float(half_width), resamples=resamples)
