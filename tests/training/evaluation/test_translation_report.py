import random
from itertools import pairwise

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from paperformer.training.evaluation.metrics import METRICS, ScoringOptions
from paperformer.training.evaluation.translation_report import (
    GROUPS,
    TranslationReport,
    report_translations,
    score_sentences,
)

RNG = random.Random(5)
SOURCES = [" ".join(RNG.choices("uvwxyz", k=RNG.randint(1, 20))) for _ in range(43)]
REFERENCES = [[" ".join(RNG.choices("abcd", k=RNG.randint(3, 9))) for _ in SOURCES] for _ in range(2)]
GOOD = [line.replace("a", "b", 1) for line in REFERENCES[0]]
BAD = [line.replace("a", "x").replace("b", "y") for line in REFERENCES[0]]


@pytest.fixture(scope="module")
def report() -> TranslationReport:
    return report_translations(GOOD, REFERENCES, SOURCES, name="good", baseline=("bad", BAD), resamples=50)


def test_sentences_are_scored_as_sacrebleu_scores_them() -> None:
    metrics = {"bleu": BLEU(effective_order=True), "chrf": CHRF(), "ter": TER()}
    for index, scores in enumerate(score_sentences(BAD, REFERENCES)):
        references = [stream[index] for stream in REFERENCES]
        assert scores == {name: metric.sentence_score(BAD[index], references).score for name, metric in metrics.items()}


def test_n_grams_and_lengths_are_those_of_bleu(report: TranslationReport) -> None:
    bleu = BLEU().corpus_score(GOOD, REFERENCES)
    assert report.system.ngrams.precisions == bleu.precisions
    assert report.system.ngrams.brevity_penalty == bleu.bp
    assert report.system.ngrams.length_ratio == pytest.approx(bleu.ratio)


def test_groups_by_length_hold_every_sentence_once_and_about_equally_many(report: TranslationReport) -> None:
    groups = report.system.by_length
    assert len(groups) == GROUPS
    counts = [group.scores[0].count for group in groups]
    assert sum(counts) == len(SOURCES)
    assert max(counts) <= 2 * min(counts)
    for before, after in pairwise(groups):
        assert before.longest < after.shortest
    assert (groups[0].shortest, groups[-1].longest) == (min(map(len, SOURCES)), max(map(len, SOURCES)))
    (first, *_) = groups
    places = [index for index, source in enumerate(SOURCES) if len(source) <= first.longest]
    own = [[stream[place] for place in places] for stream in REFERENCES]
    assert first.scores[0].value == BLEU().corpus_score([GOOD[place] for place in places], own).score


def test_equal_lengths_are_one_group() -> None:
    (group,) = report_translations(["a b", "c"], [["a b", "d"]], ["xx", "yy"], resamples=0).system.by_length
    assert (group.shortest, group.longest, group.scores[0].count) == (2, 2, 2)


def test_worst_sentences_and_greatest_differences_come_first(report: TranslationReport) -> None:
    chrf = [scores["chrf"] for scores in report.system.by_sentence]
    assert chrf[report.system.worst(1)[0]] == min(chrf)
    assert len(set(report.system.worst(5))) == 5
    assert report.baseline is not None
    apart = [
        abs(a["chrf"] - b["chrf"]) for a, b in zip(report.system.by_sentence, report.baseline.by_sentence, strict=True)
    ]
    assert apart[report.differences()[0]] == max(apart)
    assert sorted(report.differences()) == list(range(len(SOURCES)))


def test_the_comparison_is_of_the_system_with_the_baseline(report: TranslationReport) -> None:
    assert [system.name for system in report.systems] == ["bad", "good"]
    (bleu, *_) = report.comparisons
    assert bleu.system == report.system.scores[0].value > bleu.baseline
    assert bleu.verdict == "better"


def test_options_and_metrics_reach_all_of_it() -> None:
    shouted = [line.upper() for line in GOOD]
    options = ScoringOptions(lowercase=True)
    report = report_translations(shouted, REFERENCES, options=options, metrics=[METRICS["bleu"]], resamples=0)
    same = report_translations(GOOD, REFERENCES, options=options, metrics=[METRICS["bleu"]], resamples=0)
    assert [score.metric.name for score in report.system.scores] == ["bleu"]
    assert report.system.scores[0].confidence is None
    assert report.system.ngrams == same.system.ngrams
    assert report.system.by_sentence == same.system.by_sentence
    assert [group.scores for group in report.system.by_length] == [group.scores for group in same.system.by_length]
