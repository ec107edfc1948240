"""Whether one system is better than another, or only luckier with these sentences.

Both tests are sacreBLEU's: paired bootstrap resampling (Koehn 2004) and approximate randomisation (Riezler and Maxwell
2005), two-sided. A p-value is the probability of a difference as large as this one if the systems were equally good.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import psutil
from sacrebleu.significance import PairedTest

from ..console.input_error import InputError
from ..console.progress import ProgressBar
from .confidence import SEED
from .metrics import BITS_PER_BYTE, LOSS, Metric, References, ScoringOptions, output_metrics
from .passages import PassageLosses

TestName = Literal["bootstrap", "randomisation"]
_TESTS: Mapping[TestName, tuple[str, int]] = {"bootstrap": ("bs", 1000), "randomisation": ("ar", 10_000)}
"""sacreBLEU's name of each test, and how many samples it takes."""

SIGNIFICANT = 0.05
_NUMBERS_OF_A_SENTENCE = 48  # of chrF++, two systems; more than any other metric keeps


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One metric of two systems."""

    metric: Metric
    baseline: float
    system: float
    p_value: float
    signature: str
    """With the test, its number of samples and its seed."""

    @property
    def difference(self) -> float:
        """What the system has more than the baseline."""
        return self.system - self.baseline

    @property
    def is_significant(self) -> bool:
        """Whether the difference is hardly chance, at the usual 5 %."""
        return self.p_value < SIGNIFICANT

    @property
    def verdict(self) -> str:
        """Of the system: better, worse, or no different as far as these sentences tell."""
        if not self.is_significant:
            return "no significant difference"
        return "better" if self.metric.cost(self.system) < self.metric.cost(self.baseline) else "worse"


def correct_p_values(p_values: Sequence[float]) -> list[float]:
    """p-values of M tests of which any could have come out significant by chance, corrected for that.

    By Holm's step-down procedure (Holm 1979): the lowest is multiplied by M, the next by M - 1, and so on, and none is
    less than one before it. The probability that one test or more of those below 0.05 is wrong is 0.05 at the most,
    however the tests depend on each other.
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    stepped = np.minimum(1.0, np.maximum.accumulate(factors * np.asarray(p_values, dtype=np.float64)[order]))
    corrected = np.empty(len(p_values))
    corrected[order] = stepped
    return [float(each) for each in corrected]


def compare_losses(baseline: PassageLosses, system: PassageLosses) -> Comparison:
    """Tests the perplexity of a system against that of a baseline on the same N passages, by paired bootstrap.

    N passages are drawn with replacement, 1,000 times; the p-value is the share of times in which the difference of the
    two is as far from the measured one as that is from none (Efron and Tibshirani 1993, section 16.4).

    Args:
        baseline, system: with the same `sha256`, N at least 2.
    """
    _, samples = _TESTS["bootstrap"]
    if system.bytes is None:
        metric, scale, units = LOSS, 1.0, system.tokens
    else:
        metric, scale, units = BITS_PER_BYTE, math.log(2), system.bytes
    values = [float(losses.nats.sum()) / units.sum() / scale for losses in (baseline, system)]
    rng, differences = np.random.default_rng(SEED), (system.nats - baseline.nats) / scale
    drawn = (rng.integers(len(units), size=len(units)) for _ in range(samples))
    resampled = np.array([differences[places].sum() / max(1, units[places].sum()) for places in drawn])
    difference = values[1] - values[0]
    extreme = int((abs(resampled - difference) >= abs(difference)).sum())
    return Comparison(
        metric=metric,
        baseline=values[0],
        system=values[1],
        p_value=(extreme + 1) / (samples + 1),
        signature=f"passages:{len(units)}|bs:{samples}|seed:{SEED}",
    )


def compare_systems(
    baseline: Sequence[str],
    system: Sequence[str],
    references: References,
    options: ScoringOptions | None = None,
    test: TestName = "bootstrap",
    metrics: Collection[Metric] | None = None,
) -> list[Comparison]:
    """Tests the outputs of a system against those of a baseline, on the same N sentences.

    Args:
        baseline, system: N outputs each.
        references: streams of N raw references.
        options: how they are compared.
        test: how the p-value is computed.
        metrics: which, by default all that compare outputs.

    Raises:
        InputError: if there is not enough memory for so many sentences.
    """
    kind, samples = _TESTS[test]
    needed = samples * len(baseline) * (_NUMBERS_OF_A_SENTENCE * 4 if kind == "bs" else 2)  # bytes, in sacreBLEU
    if needed > psutil.virtual_memory().available:
        raise InputError(
            f"the {test} test of {len(baseline):,} sentences takes {needed / 1e9:.0f} GB of memory, which are "
            "not free; compare the systems on a part of them"
        )
    chosen = output_metrics() if metrics is None else list(metrics)
    comparisons = []
    for metric in ProgressBar(chosen, desc="test", unit=" metrics"):
        assert metric.make is not None
        scorers = {metric.name: metric.make(options or ScoringOptions())}
        signatures, results = PairedTest(
            [("baseline", baseline), ("system", system)], scorers, list(references), test_type=kind, n_samples=samples
        )()
        ((name, signature),) = signatures.items()  # sacreBLEU's own name, such as chrF2++
        first, second = cast("dict[str, Any]", dict(results))[name]
        comparisons.append(
            Comparison(
                metric=metric,
                baseline=first.score,
                system=second.score,
                # sacreBLEU counts what is larger than the difference, hence nothing where two systems are the same.
                p_value=second.p_value if second.score != first.score else 1.0,
                signature=str(signature),
            )
        )
    return comparisons
