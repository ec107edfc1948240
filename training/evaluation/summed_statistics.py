"""A metric from two functions, with all that sacreBLEU's own metrics have."""

from collections.abc import Callable, Sequence
from typing import Any

from sacrebleu.metrics.base import Metric, Score

Statistics = Callable[[str, Sequence[str]], Sequence[float]]
"""An output and its raw references -> numbers that can be added up over sentences."""


class SummedStatistics(Metric):
    """A metric of sums over sentences: intervals, tests of significance and sentence scores come with it.

    Args:
        name: of its scores.
        statistics: the numbers of one sentence.
        value: the sums of those numbers, over a corpus or a sentence -> the score.
        preprocess: what is done to outputs and references before; by default nothing.
    """

    def __init__(
        self,
        name: str,
        statistics: Statistics,
        value: Callable[[Sequence[float]], float],
        preprocess: Callable[[str], str] | None = None,
    ):
        super().__init__()
        self.name, self._statistics, self._value = name, statistics, value
        self._preprocess = preprocess

    def _preprocess_segment(self, sent: str) -> str:
        return self._preprocess(sent) if self._preprocess else sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": list(refs)}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        return list(self._statistics(hypothesis, ref_kwargs["references"]))

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        return Score(self.name, float(self._value(stats)))

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])
