"""Metrics and scores: a number never travels without what it takes to compare it.

A new metric is one more entry of `METRICS`. If it has `compute`, it compares outputs with references: then it is taken
at every validation that translates, can select the weights, and is in `evaluation.json`, the card, the report and the
comparison of runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric as SacrebleuMetric

Compute = Callable[[Sequence[str], Sequence[str]], tuple[float, str]]
"""Hypotheses and raw references -> value and signature."""


@dataclass(frozen=True)
class Metric:
    """What is measured, and how its figures are written."""

    name: str
    """In recipes and metrics.jsonl; the Hub's identifier where it has a page for the metric (`on_hub`)."""

    title: str
    unit: str = ""
    digits: int = 2
    """Decimals that a card shows."""

    over: str = "sentences"
    """What is counted below the line: sentences, spans, tokens, words or bytes."""

    higher_is_better: bool = True
    on_hub: bool = False
    file_name: str = ""
    """Its name in evaluation.json, where that is another."""

    value_key: str | None = "score"
    """In evaluation.json, the name of the value inside the metric's entry; None: the entry is the value."""

    compute: Compute | None = None
    """Compares outputs with references, line by line; None for what its objective measures itself."""

    generates: bool = False
    """Whether outputs are generated for it, though it has no `compute`."""

    @property
    def of_outputs(self) -> bool:
        """Whether it depends on how outputs were generated."""
        return self.generates or self.compute is not None

    @property
    def label(self) -> str:
        """Title and unit."""
        return f"{self.title}, {self.unit}" if self.unit else self.title

    @property
    def entry(self) -> str:
        """Its name in evaluation.json."""
        return self.file_name or self.name

    def cost(self, value: float) -> float:
        """The value as what is to be small."""
        return -value if self.higher_is_better else value


@dataclass(frozen=True, kw_only=True)
class Score:
    """One value of a metric, and how and over how much it was measured."""

    metric: Metric
    value: float
    count: int
    """Of `metric.over`."""

    signature: str = ""
    """How it was computed (Post 2018)."""

    split: str = ""
    decoding: str = ""
    """Settings of generation; empty where nothing was generated."""

    @property
    def basis(self) -> str:
        """Denominator and signature: scores compare only where these are the same."""
        return ", ".join(filter(None, [f"{self.count:,} {self.metric.over}", self.signature]))

    def record(self) -> dict[str, Any]:
        """As plain values."""
        metric = self.metric
        names = {"metric": metric.name, "name": metric.label, "digits": metric.digits}
        return names | {"value": self.value, "basis": self.basis, "split": self.split, "decoding": self.decoding}

    @property
    def shown(self) -> str:
        """The value with as many decimals as its metric has."""
        return f"{self.value:.{self.metric.digits}f}"


def _corpus_score(make: Callable[[], SacrebleuMetric]) -> Compute:
    """A metric of sacreBLEU: nothing is tokenised, lower-cased or decoded before it."""

    def compute(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
        metric = make()
        value = metric.corpus_score(hypotheses, [references]).score
        return value, str(metric.get_signature())

    return compute


def match_exactly(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """The share of outputs that equal their reference, in percent."""
    matches = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return 100 * matches / len(references), ""


LOSS = Metric(
    "loss", "Loss", unit="nats a token", digits=4, over="tokens", higher_is_better=False, value_key="nats_per_token"
)
PERPLEXITY = Metric(
    "perplexity",
    "Perplexity a word",
    over="words",
    higher_is_better=False,
    on_hub=True,
    file_name="word_perplexity",
    value_key=None,
)
BITS_PER_BYTE = Metric("bits_per_byte", "Bits a byte", digits=4, over="bytes", higher_is_better=False, value_key=None)
MASKED_ACCURACY = Metric("masked_accuracy", "Masked accuracy", unit="%", over="tokens", value_key="percent")
PSEUDO_PERPLEXITY = Metric(
    "pseudo_perplexity", "Pseudo-perplexity a token", over="tokens", higher_is_better=False, value_key="per_token"
)
EXACT_SPANS = Metric("exact_spans", "Exact spans", unit="%", over="spans", value_key=None, generates=True)
EXACT_MATCH = Metric("exact_match", "Exact match", unit="%", on_hub=True, value_key=None, compute=match_exactly)

METRICS = {
    metric.name: metric
    for metric in (
        Metric("bleu", "BLEU", on_hub=True, compute=_corpus_score(BLEU)),  # Papineni et al. 2002, Post 2018
        Metric("chrf", "chrF", on_hub=True, compute=_corpus_score(CHRF)),  # Popović 2015
        EXACT_MATCH,
        EXACT_SPANS,
        MASKED_ACCURACY,
        LOSS,
        PERPLEXITY,
        PSEUDO_PERPLEXITY,
        BITS_PER_BYTE,
    )
}
"""All metrics by name, in the order in which they are shown."""


def output_metrics() -> list[Metric]:
    """The metrics that compare outputs with references."""
    return [metric for metric in METRICS.values() if metric.compute is not None]


def score_outputs(hypotheses: Sequence[str], references: Sequence[str]) -> list[Score]:
    """All scores of outputs against raw references, line by line."""
    scores = []
    for metric in METRICS.values():
        if metric.compute is not None:
            value, signature = metric.compute(hypotheses, references)
            scores.append(Score(metric=metric, value=value, count=len(references), signature=signature))
    return scores
