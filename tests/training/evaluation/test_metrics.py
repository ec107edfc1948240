import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER

from paperformer.training.evaluation.confidence import bootstrap
from paperformer.training.evaluation.evaluation_file import fields_of
from paperformer.training.evaluation.metrics import METRICS, ScoringOptions, output_metrics, score_outputs
from paperformer.training.evaluation.summed_statistics import SummedStatistics

from ...examples import examples

HYPOTHESES = [
    "Ein Hund läuft am Strand entlang.",
    "Zwei Männer, die reden!",
    "Das ist „gut“.",
    "Etwas.",
    "1,5 km weit weg",
]
REFERENCES = [
    ["Ein Hund rennt am Strand entlang.", "Zwei Männer reden.", "Das ist „gut“.", "Nichts.", "1,5 km weit entfernt"],
    ["Am Strand läuft ein Hund.", "Zwei Männer, die reden!", "Es ist gut.", "Leer.", "anderthalb Kilometer weit"],
]


def test_scores_and_intervals_are_those_of_sacrebleu_s_command(tmp_path: Path) -> None:
    """With several references."""
    (tmp_path / "hyp").write_text("\n".join(HYPOTHESES) + "\n", "utf-8")
    for number, stream in enumerate(REFERENCES):
        (tmp_path / f"ref{number}").write_text("\n".join(stream) + "\n", "utf-8")
    command = [sys.executable, "-m", "sacrebleu", "ref0", "ref1", "-i", "hyp", "-w", "4", "--confidence", "-f", "text"]
    command += ["-m", "bleu", "chrf", "ter", "--chrf-word-order", "2"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    scores = fields_of(score_outputs(HYPOTHESES, REFERENCES, resamples=1000))
    for name, said in zip(("bleu", "chrf++", "ter"), result.stdout.splitlines(), strict=True):
        ours, interval = scores[name], scores[name]["confidence"]
        signature = ours["signature"].replace("nrefs:2|", "nrefs:2|bs:1000|seed:12345|")
        figures = f"{ours['score']:.4f} (μ = {interval['mean']:.4f} ± {interval['half_width']:.4f})"
        assert f"|{signature} = {figures}" in said
        assert 10 < ours["score"] < 80
    assert (scores["exact_match"], scores["sentences"]) == (40.0, 5)


def test_intervals_are_computed_in_the_precision_of_sacrebleu() -> None:
    """Of which a thousand sentences show nothing, and large sums do."""
    metric = SummedStatistics("Sum", lambda hypothesis, references: [float(hypothesis)], lambda sums: sums[0])
    hypotheses, references = [str(2**24 + number) for number in range(20)], [[""] * 20]
    theirs = metric.corpus_score(hypotheses, references, n_bootstrap=50)
    statistics = metric._extract_corpus_statistics(hypotheses, references)
    ours = bootstrap(metric, statistics, 50)
    assert ours.half_width == theirs._ci
    assert ours.mean == pytest.approx(theirs._mean, rel=1e-12)


TEXT = st.text(st.sampled_from("ab. ,äß„“’1中 "), max_size=30)


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=n, max_size=n)))
@settings(max_examples=examples(40))
def test_scores_are_those_of_sacrebleu_for_any_text(rows: list[tuple[str, str, str]]) -> None:
    hypotheses, *references = map(list, zip(*rows, strict=True))
    theirs = {"bleu": BLEU(), "chrf": CHRF(), "chrf++": CHRF(word_order=2), "ter": TER()}
    scores = {score.metric.name: score for score in score_outputs(hypotheses, references)}
    for name, metric in theirs.items():
        assert scores[name].value == metric.corpus_score(hypotheses, references).score
        assert scores[name].signature == str(metric.get_signature())
    matches = [hypothesis in (one, other) for hypothesis, one, other in rows]
    assert scores["exact_match"].value == pytest.approx(100 * sum(matches) / len(rows))


def test_options_reach_every_metric() -> None:
    shouted = [text.upper() for text in HYPOTHESES]
    for score, lower in zip(
        score_outputs(HYPOTHESES, REFERENCES, ScoringOptions(lowercase=True)),
        score_outputs(shouted, REFERENCES, ScoringOptions(lowercase=True)),
        strict=True,
    ):
        assert score.value == lower.value, score.metric.name
    for score, upper in zip(score_outputs(HYPOTHESES, REFERENCES), score_outputs(shouted, REFERENCES), strict=True):
        assert (score.value != upper.value) == (score.metric.name != "ter"), score.metric.name
    (bleu,) = score_outputs(["a-b c"], [["a-b d"]], ScoringOptions(bleu_tokenizer="none"), [METRICS["bleu"]])
    assert "tok:none" in bleu.signature
    with pytest.raises(ValueError, match="bleu_tokenizer is moses; it must be one of 13a, none, intl"):
        ScoringOptions(bleu_tokenizer="moses")


def test_an_interval_holds_its_score_and_narrows_with_the_number_of_sentences() -> None:
    rng = random.Random(1)
    references = [" ".join(rng.choices("abcdefgh", k=9)) for _ in range(400)]
    hypotheses = [" ".join(word for word in line.split() if rng.random() < 0.8) for line in references]
    few = score_outputs(hypotheses[:50], [references[:50]], resamples=200)
    many = score_outputs(hypotheses, [references], resamples=200)
    for one, other in zip(few, many, strict=True):
        assert one.confidence is not None
        assert other.confidence is not None
        assert abs(other.confidence.mean - other.value) < other.confidence.half_width
        assert other.confidence.half_width < one.confidence.half_width
    assert " ± " in many[0].shown


def test_a_metric_of_sums_scores_sentences_and_corpora_alike() -> None:
    metric = SummedStatistics(
        "Length", lambda hypothesis, references: (len(hypothesis), len(references[0])), lambda sums: sums[0] / sums[1]
    )
    assert metric.corpus_score(["aa", "bbbb"], [["a", "bbb"]]).score == 1.5
    assert metric.sentence_score("aa", ["a"]).score == 2
    assert metric.corpus_score(["aa", "bbbb"], [["a", "bbb"]], n_bootstrap=100)._mean == pytest.approx(1.5, abs=0.2)
    assert isinstance(metric._compute_score_from_stats(np.array([3, 2])).score, float)


@pytest.mark.parametrize(
    ("name", "better", "worse"),
    [
        ("bleu", 30, 20),
        ("chrf", 60, 50),
        ("chrf++", 60, 50),
        ("ter", 40, 50),
        ("exact_match", 9, 1),
        ("loss", 1, 2),
        ("perplexity", 20, 30),
        ("pseudo_perplexity", 20, 30),
        ("masked_accuracy", 40, 30),
        ("exact_spans", 9, 1),
        ("bits_per_byte", 1, 2),
        ("token_perplexity", 20, 30),
        ("byte_perplexity", 2, 3),
    ],
)
def test_which_of_two_values_is_better(name: str, better: float, worse: float) -> None:
    assert METRICS[name].cost(better) < METRICS[name].cost(worse)


def test_the_direction_of_every_metric_is_tested_above() -> None:
    of_outputs = {"bleu", "chrf", "chrf++", "ter", "exact_match"}
    assert {metric.name for metric in output_metrics()} == of_outputs
    of_text = {"loss", "perplexity", "bits_per_byte", "pseudo_perplexity", "masked_accuracy", "exact_spans"}
    units = {"token_perplexity", "byte_perplexity"}
    assert METRICS.keys() == of_outputs | of_text | units
