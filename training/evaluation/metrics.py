"""Metrics and scores: a number never travels without what it takes to compare it.

A new metric is one more entry of `METRICS`. If it has `make`, it compares outputs with references: then it is taken at
every validation that translates, can select the weights, has confidence intervals, and is in `evaluation.json`, the
card, the report, the comparison of runs and of systems, and `paperformer evaluate`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric as SacrebleuMetric

from ..console.progress import ProgressBar
from ..recipe.evaluation import BleuTokenizer, EvaluationOptions
from .confidence import Confidence, bootstrap
from .summed_statistics import SummedStatistics


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """How outputs are compared with references, by all metrics.

    Raises:
        ValueError: naming the field.
    """

    bleu_tokenizer: str = "13a"
    """13a for most languages; zh, ja-mecab, ko-mecab, char, or flores200 where words are not separated; none for text
    that is tokenised already, of which scores compare with nothing else."""

    lowercase: bool = False
    """Score without regard to case."""

    warn: bool = True
    """Whether sacreBLEU says that text seems to be tokenised already."""

    by_sentence: bool = False
    """Of single sentences: BLEU counts the orders of n-grams that the sentence has ("effective order")."""

    def __post_init__(self) -> None:
        if self.bleu_tokenizer not in get_args(BleuTokenizer):
            known = ", ".join(get_args(BleuTokenizer))
            raise ValueError(f"bleu_tokenizer is {self.bleu_tokenizer}; it must be one of {known}")


def scoring_options(options: EvaluationOptions) -> ScoringOptions:
    """How a run's outputs are compared with references."""
    return ScoringOptions(bleu_tokenizer=options.bleu_tokenizer, lowercase=options.lowercase)


Make = Callable[[ScoringOptions], SacrebleuMetric]
"""Makes what compares hypotheses with raw references, as sacreBLEU's metrics do: nothing is decoded before it."""

References = Sequence[Sequence[str]]
"""One or more streams of raw references, each with a line for every hypothesis, as sacreBLEU takes them."""


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

    make: Make | None = None
    """Makes what compares outputs with references; None for what its objective measures itself."""

    generates: bool = False
    """Whether outputs are generated for it, though it has no `make`."""

    while_training: bool = True
    """Whether it is taken at validations, and can select the weights: not what takes seconds."""

    @property
    def of_outputs(self) -> bool:
        """Whether it depends on how outputs were generated."""
        return self.generates or self.make is not None

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

    confidence: Confidence | None = None
    """What resampling the sentences says of the value."""

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
        """The value with as many decimals as its metric has, and half the width of its interval."""
        value = f"{self.value:.{self.metric.digits}f}"
        return f"{value} ± {self.confidence.half_width:.{self.metric.digits}f}" if self.confidence else value


def _bleu(options: ScoringOptions) -> SacrebleuMetric:
    return BLEU(
        lowercase=options.lowercase,
        tokenize=options.bleu_tokenizer,
        effective_order=options.by_sentence,
        force=not options.warn or options.bleu_tokenizer == "none",  # that it is tokenised is known then
    )


def _chrf(options: ScoringOptions) -> SacrebleuMetric:
    return CHRF(lowercase=options.lowercase)


def _chrf_with_words(options: ScoringOptions) -> SacrebleuMetric:
    return CHRF(lowercase=options.lowercase, word_order=2)


def _ter(options: ScoringOptions) -> SacrebleuMetric:
    return TER()  # never with regard to case, as sacreBLEU's command has it, and its signature says


def _exact_match(options: ScoringOptions) -> SacrebleuMetric:
    def compare(hypothesis: str, references: Sequence[str]) -> tuple[float, float]:
        return float(hypothesis in references), 1.0

    return SummedStatistics(
        "Exact match", compare, lambda sums: 100 * sums[0] / sums[1], str.lower if options.lowercase else None
    )


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
TOKEN_PERPLEXITY = Metric(
    "token_perplexity", "Perplexity a token", over="tokens", higher_is_better=False, value_key=None
)
BYTE_PERPLEXITY = Metric(
    "byte_perplexity", "Perplexity a byte", digits=4, over="bytes", higher_is_better=False, value_key=None
)
"""These two say the same as the loss in nats a token and the bits a byte: a run does not record them."""

MASKED_ACCURACY = Metric("masked_accuracy", "Masked accuracy", unit="%", over="tokens", value_key="percent")
PSEUDO_PERPLEXITY = Metric(
    "pseudo_perplexity", "Pseudo-perplexity a token", over="tokens", higher_is_better=False, value_key="per_token"
)
EXACT_SPANS = Metric("exact_spans", "Exact spans", unit="%", over="spans", value_key=None, generates=True)
EXACT_MATCH = Metric("exact_match", "Exact match", unit="%", on_hub=True, value_key=None, make=_exact_match)

METRICS = {
    metric.name: metric
    for metric in (
        Metric("bleu", "BLEU", on_hub=True, make=_bleu),  # Papineni et al. 2002, Post 2018
        Metric("chrf", "chrF", on_hub=True, make=_chrf),  # Popović 2015
        Metric("chrf++", "chrF++", make=_chrf_with_words, while_training=False),  # Popović 2017
        Metric(
            "ter", "TER", on_hub=True, higher_is_better=False, make=_ter, while_training=False
        ),  # Snover et al. 2006
        EXACT_MATCH,
        EXACT_SPANS,
        MASKED_ACCURACY,
        LOSS,
        TOKEN_PERPLEXITY,
        PERPLEXITY,
        BYTE_PERPLEXITY,
        PSEUDO_PERPLEXITY,
        BITS_PER_BYTE,
    )
}
"""All metrics by name, in the order in which they are shown."""


def output_metrics() -> list[Metric]:
    """The metrics that compare outputs with references."""
    return [metric for metric in METRICS.values() if metric.make is not None]


def validation_metrics() -> list[Metric]:
    """Those of them that are taken at every validation that translates."""
    return [metric for metric in output_metrics() if metric.while_training]


def score_outputs(
    hypotheses: Sequence[str],
    references: References,
    options: ScoringOptions | None = None,
    metrics: Collection[Metric] | None = None,
    resamples: int = 0,
) -> list[Score]:
    """Scores of outputs against raw references.

    Args:
        hypotheses: N outputs, N at least 1.
        references: streams of N references.
        options: how they are compared.
        metrics: which, by default all that compare outputs.
        resamples: from how many bootstrap resamples of the sentences an interval is estimated; 0 leaves it out.
    """
    scores = []
    chosen = output_metrics() if metrics is None else list(metrics)
    for metric in ProgressBar(chosen, desc="score", unit=" metrics"):
        assert metric.make is not None
        scorer = metric.make(options or ScoringOptions())
        statistics = scorer._extract_corpus_statistics(hypotheses, references)
        scores.append(
            Score(
                metric=metric,
                value=scorer._aggregate_and_compute(statistics).score,
                count=len(hypotheses),
                signature=str(scorer.get_signature()) if metric.value_key == "score" else "",
                confidence=bootstrap(scorer, statistics, resamples) if resamples else None,
            )
        )
    return scores
