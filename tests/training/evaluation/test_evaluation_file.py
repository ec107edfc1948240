"""evaluation.json has the form that it had before scores had a type; what is written is read."""

from dataclasses import replace

import pytest

from paperformer.training.evaluation.confidence import Confidence
from paperformer.training.evaluation.evaluation_file import Evaluation, entry_of, read_scores
from paperformer.training.evaluation.metrics import BITS_PER_BYTE, EXACT_MATCH, LOSS, METRICS, PERPLEXITY, Score

DECODING = {"num_beams": 5, "length_penalty": 0.9}
TRANSLATION = [
    Score(
        metric=METRICS["bleu"],
        value=39.5,
        count=1000,
        signature="nrefs:1",
        confidence=Confidence(mean=39.25, half_width=1.5, resamples=1000),
    ),
    Score(metric=METRICS["chrf"], value=60.25, count=1000, signature="nc:6"),
    Score(metric=EXACT_MATCH, value=4.5, count=1000),
    Score(metric=LOSS, value=1.5, count=14_000),
]
TEXT = [
    Score(metric=LOSS, value=3.0, count=900),
    Score(metric=PERPLEXITY, value=66.0, count=700),
    Score(metric=BITS_PER_BYTE, value=1.25, count=4000),
]


def test_the_entry_of_a_translation_and_its_order() -> None:
    evaluation = Evaluation(scores=TRANSLATION, outputs=[], decoding=DECODING)
    assert list(entry_of("translation", "test", evaluation, 12.34).items()) == [
        ("task", "translation"),
        ("split", "test"),
        ("decoding", DECODING),
        (
            "bleu",
            {
                "score": 39.5,
                "signature": "nrefs:1",
                "confidence": {"mean": 39.25, "half_width": 1.5, "resamples": 1000},
            },
        ),
        ("chrf", {"score": 60.25, "signature": "nc:6"}),
        ("exact_match", 4.5),
        ("sentences", 1000),
        ("loss", {"nats_per_token": 1.5, "tokens": 14_000}),
        ("seconds", 12.3),
    ]


def test_the_entry_of_a_text_and_its_order() -> None:
    assert list(entry_of("text-generation", "validation", Evaluation(scores=TEXT, outputs=[]), 1).items()) == [
        ("task", "text-generation"),
        ("split", "validation"),
        ("loss", {"nats_per_token": 3.0, "tokens": 900}),
        ("word_perplexity", 66.0),
        ("words", 700),
        ("bits_per_byte", 1.25),
        ("bytes", 4000),
        ("seconds", 1),
    ]


@pytest.mark.parametrize("scores", [TRANSLATION, TEXT])
def test_what_is_written_is_read_with_its_split_and_where_text_was_made_how(scores: list[Score]) -> None:
    entry = entry_of("any", "test", Evaluation(scores=scores, outputs=[], decoding=DECODING), 1.0)
    assert read_scores(entry) == [
        replace(score, split="test", decoding="num_beams 5, length_penalty 0.9" if score.metric.make else "")
        for score in scores
    ]
    assert read_scores({"test": entry, "validation": entry | {"split": "validation"}}) == [
        replace(score, split=split) for split in ("test", "validation") for score in read_scores(entry)
    ]
