"""What there is to say of translations beyond a figure: by sentence, length and n-gram, and beside another system."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU

from ..console.progress import ProgressBar
from ..data.unseen_words import UnseenWords
from .confidence import RESAMPLES
from .domains import DomainScores, score_domains
from .metrics import METRICS, Metric, References, Score, ScoringOptions, output_metrics, score_outputs
from .significance import Comparison, TestName, compare_systems

WITHOUT_UNSEEN_WORDS, WITH_UNSEEN_WORDS = "none", "some"

GROUPS = 5
"""Of about equal size, into which sentences are divided by their length."""

SENTENCE_METRICS = ("bleu", "chrf", "ter")


@dataclass(frozen=True, kw_only=True)
class Ngrams:
    """What BLEU is made of (Papineni et al. 2002)."""

    precisions: Sequence[float]
    """Of 1-grams to 4-grams, in percent."""

    brevity_penalty: float
    length_ratio: float
    """Words of the outputs, as BLEU counts them, over those of the references (of several, the closest in length)."""


@dataclass(frozen=True, kw_only=True)
class LengthGroup:
    """Sentences of similar length."""

    shortest: int
    """In characters of the source, or of the first reference where there is no source."""

    longest: int
    scores: Sequence[Score]


@dataclass(frozen=True, kw_only=True)
class SystemReport:
    """One system's outputs for N sentences, and how good they are."""

    name: str
    hypotheses: Sequence[str]
    scores: Sequence[Score]
    ngrams: Ngrams
    by_length: Sequence[LengthGroup]
    by_sentence: Sequence[dict[str, float]]
    """Of each sentence, {metric: value}, of `SENTENCE_METRICS`."""

    def worst(self, count: int) -> list[int]:
        """Places of the sentences with the lowest chrF, which says more of a single sentence than BLEU does."""
        return sorted(range(len(self.by_sentence)), key=lambda index: self.by_sentence[index]["chrf"])[:count]


@dataclass(frozen=True, kw_only=True)
class TranslationReport:
    """A system's outputs for N sentences; perhaps beside those of a baseline."""

    sources: Sequence[str] | None
    references: References
    system: SystemReport
    baseline: SystemReport | None = None
    comparisons: Sequence[Comparison] = ()

    @property
    def systems(self) -> list[SystemReport]:
        """The baseline first, if there is one."""
        return [self.system] if self.baseline is None else [self.baseline, self.system]

    def differences(self) -> list[int]:
        """Places of all sentences, those first whose chrF the two systems differ in most."""
        first, last = self.systems[0].by_sentence, self.systems[-1].by_sentence
        return sorted(range(len(first)), key=lambda index: -abs(last[index]["chrf"] - first[index]["chrf"]))


def report_translations(
    hypotheses: Sequence[str],
    references: References,
    sources: Sequence[str] | None = None,
    *,
    name: str = "system",
    baseline: tuple[str, Sequence[str]] | None = None,
    options: ScoringOptions | None = None,
    test: TestName = "bootstrap",
    metrics: Sequence[Metric] | None = None,
    resamples: int = RESAMPLES,
) -> TranslationReport:
    """Scores outputs in all ways.

    Args:
        hypotheses: N outputs, N at least 1.
        references: streams of N raw references.
        sources: N raw sources, where they are known.
        name: of the system.
        baseline: name and outputs of a system to compare with.
        options: how outputs and references are compared.
        test: of significance.
        metrics: of the whole, by default all that compare outputs.
        resamples: from how many bootstrap resamples intervals are estimated; 0 leaves them out.

    Raises:
        InputError: as `compare_systems`.
    """
    options = options or ScoringOptions()
    of_parts = replace(options, warn=False)  # the whole has warned
    chosen = output_metrics() if metrics is None else list(metrics)

    def report(name: str, hypotheses: Sequence[str]) -> SystemReport:
        return SystemReport(
            name=name,
            hypotheses=hypotheses,
            scores=score_outputs(hypotheses, references, options, chosen, resamples),
            ngrams=_count_ngrams(hypotheses, references, options),
            by_length=_score_by_length(hypotheses, references, references[0] if sources is None else sources, of_parts),
            by_sentence=score_sentences(hypotheses, references, options),
        )

    return TranslationReport(
        sources=sources,
        references=references,
        system=report(name, hypotheses),
        baseline=report(*baseline) if baseline else None,
        comparisons=compare_systems(baseline[1], hypotheses, references, of_parts, test, chosen) if baseline else (),
    )


@dataclass(frozen=True, kw_only=True)
class Weaknesses:
    """Where a model is worst."""

    by_length: Sequence[LengthGroup] = ()
    worst: Sequence[tuple[str, str, str, float]] = ()
    """(source, reference, output, chrF) of the sentences with the lowest chrF, the lowest first; none that is its
    reference."""

    by_domain: Sequence[DomainScores] = ()
    by_unseen_words: Sequence[DomainScores] = ()
    """Of the sentences without words that are not in the training text, and of those with some."""
    unseen_words: UnseenWords | None = None


def find_weaknesses(
    pairs: Sequence[tuple[str, str]],
    outputs: Sequence[str],
    options: ScoringOptions,
    count: int,
    domains: Sequence[str] = (),
    unseen_words: UnseenWords | None = None,
) -> Weaknesses:
    """Scores by length, by domain and by whether all words are known, and some of the worst sentences.

    Args:
        pairs: N of (source, reference), N at least 1.
        outputs: their translations.
        options: how they are compared.
        count: how many sentences.
        domains: of the N, if they are known.
        unseen_words: of the N sources, if they are known.
    """
    sources, references = map(list, zip(*pairs, strict=True))
    by_sentence = score_sentences(outputs, [references], options, ("chrf",))
    rows = [
        (source, reference, output, scores["chrf"])
        for (source, reference), output, scores in zip(pairs, outputs, by_sentence, strict=True)
    ]
    return Weaknesses(
        by_length=_score_by_length(outputs, [references], sources, replace(options, warn=False)),
        worst=sorted((row for row in rows if row[2] != row[1]), key=lambda row: row[-1])[:count],
        by_domain=_score_parts(outputs, references, domains, options, unseen_words),
        by_unseen_words=_score_parts(outputs, references, _parts_by_words(unseen_words), options, unseen_words),
        unseen_words=unseen_words,
    )


def _score_parts(
    outputs: Sequence[str],
    references: Sequence[str],
    names: Sequence[str],
    options: ScoringOptions,
    unseen_words: UnseenWords | None,
) -> list[DomainScores]:
    """Scores of the sentences of each name."""
    if not names:
        return []
    parts = score_domains(outputs, [references], names, options)
    if unseen_words is None:
        return parts
    return [replace(part, unseen_words=unseen_words.share(np.array(names) == part.name)) for part in parts]


def _parts_by_words(unseen_words: UnseenWords | None) -> list[str]:
    """The name of the part that each sentence is in; none where no sentence has words, as of scripts without spaces."""
    if unseen_words is None or unseen_words.share() is None:
        return []
    return [WITH_UNSEEN_WORDS if count else WITHOUT_UNSEEN_WORDS for count in unseen_words.unseen]


def score_sentences(
    hypotheses: Sequence[str],
    references: References,
    options: ScoringOptions | None = None,
    metrics: Iterable[str] = SENTENCE_METRICS,
) -> list[dict[str, float]]:
    """Of each of N sentences, {metric: value}, as sacreBLEU's `sentence_score` gives it."""
    options = replace(options or ScoringOptions(), by_sentence=True, warn=False)
    columns = {}
    for metric in ProgressBar(_metrics(metrics), desc="score sentences", unit=" metrics"):
        assert metric.make is not None
        scorer = metric.make(options)
        statistics = scorer._extract_corpus_statistics(hypotheses, references)
        columns[metric.name] = [scorer._aggregate_and_compute([numbers]).score for numbers in statistics]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _metrics(names: Iterable[str]) -> list[Metric]:
    return [METRICS[name] for name in names]


def _count_ngrams(hypotheses: Sequence[str], references: References, options: ScoringOptions) -> Ngrams:
    bleu: Any = BLEU(lowercase=options.lowercase, tokenize=options.bleu_tokenizer, force=True)
    score = bleu.corpus_score(hypotheses, references)
    return Ngrams(
        precisions=score.precisions, brevity_penalty=score.bp, length_ratio=score.sys_len / (score.ref_len or 1)
    )


def _score_by_length(
    hypotheses: Sequence[str], references: References, texts: Sequence[str], options: ScoringOptions
) -> list[LengthGroup]:
    """Scores of groups of about equal size; equally long sentences are in the same."""
    lengths = np.array([len(text) for text in texts])
    bounds = np.unique(np.quantile(lengths, np.linspace(0, 1, GROUPS + 1)[1:], method="higher"))
    groups = []
    for number in range(len(bounds)):
        places = np.flatnonzero(np.searchsorted(bounds, lengths) == number).tolist()
        own_references = [[stream[place] for place in places] for stream in references]
        groups.append(
            LengthGroup(
                shortest=int(lengths[places].min()),
                longest=int(lengths[places].max()),
                scores=score_outputs(
                    [hypotheses[place] for place in places], own_references, options, _metrics(("bleu", "chrf"))
                ),
            )
        )
    return groups
