"""Samples, and the one that is most like all, against their definitions."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF

from paperformer.decoding.minimum_bayes_risk import best_by_mean_chrf, draw_samples, pairwise_chrf
from paperformer.decoding.search import Search, search_texts
from paperformer.decoding.seeded_sampling import DrawnTokens
from paperformer.decoding.translator import Translator
from paperformer.training.evaluation.decoding import source_batches

from ...examples import examples

SOURCES = ["A dog runs.", "Two men talk on the beach.", "A dog talk."]
TEXTS = st.lists(st.text("ab é,", max_size=12), min_size=1, max_size=6)


def ignore(index: int, what: str) -> None:
    pass


@given(TEXTS)
@settings(max_examples=examples(40))
def test_chrf_of_all_pairs_is_sacrebleus(texts: list[str]) -> None:
    expected = [[CHRF().sentence_score(text, [reference]).score for reference in texts] for text in texts]
    np.testing.assert_allclose(pairwise_chrf(texts), expected, atol=1e-9)


@given(TEXTS)
@settings(max_examples=examples(20))
def test_the_best_have_the_highest_mean_with_all_samples(samples: list[str]) -> None:
    means = [
        sum(CHRF().sentence_score(sample, [other]).score for other in samples) / len(samples) for sample in samples
    ]
    best = best_by_mean_chrf(samples, len(samples))
    assert [mean for _, mean in best] == pytest.approx([means[place] for place, _ in best])
    assert best[0][1] == pytest.approx(max(means))
    assert sorted({samples[place] for place, _ in best}) == sorted(set(samples))


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    probabilities = torch.tensor([0.5, 0.0, 0.3, 0.2])
    rows = 1000
    draw = DrawnTokens([[5]], rows, 2, seed=1)
    draw.numbers[:, 1] = (torch.arange(rows) + 0.5) / rows
    scores = probabilities.log().expand(rows, -1)
    left = draw(torch.zeros(rows, 2, dtype=torch.long), scores)
    assert (left.softmax(-1).sum(0) / rows).tolist() == pytest.approx(probabilities.tolist(), abs=1e-3)
    assert ((left > -torch.inf).sum(-1) == 1).all()
    drawn = draw(torch.zeros(rows, 1, dtype=torch.long), scores).argmax(-1)  # by numbers of its own
    counts = torch.bincount(drawn, minlength=4) / rows
    assert counts.tolist() == pytest.approx(probabilities.tolist(), abs=0.05)


def test_samples_are_those_of_the_seed_and_the_text(one: Translator) -> None:
    def sample(seed: int, texts: list[str]) -> list[str]:
        found: list[str] = [""] * len(texts) * 6
        for batch in source_batches(one.model, one.tokenizer, texts, max_length=64, hypotheses=6):
            outputs = one.tokenizer.batch_decode(draw_samples(one.model, batch, 6, 0.0, seed))
            for place, row in enumerate(batch.rows):
                found[6 * row : 6 * row + 6] = outputs[6 * place : 6 * place + 6]
        return [text.replace("<pad>", "") for text in found]

    together = sample(3, SOURCES)
    assert together == [text for source in SOURCES for text in sample(3, [source])]
    assert together != sample(4, SOURCES)
    assert len(set(together)) > 12


def test_no_token_is_less_probable_than_epsilon(one: Translator) -> None:
    (batch,) = source_batches(one.model, one.tokenizer, SOURCES[:1], max_length=64, hypotheses=8)
    for epsilon, is_bounded in ((0.04, True), (0.0, False)):
        samples = draw_samples(one.model, batch, 8, epsilon, 1)
        ids = batch.input_ids.expand(8, -1)
        with torch.no_grad():
            logits = one.model(input_ids=ids, decoder_input_ids=samples[:, :-1]).logits
        drawn = logits.softmax(-1).gather(-1, samples[:, 1:, None])[..., 0]
        is_likeliest = logits.argmax(-1) == samples[:, 1:]  # which may be drawn where all are improbable
        improbable = (drawn < 0.04) & ~is_likeliest & (samples[:, 1:] != 0)
        assert improbable.any() == (not is_bounded)


def test_a_translation_is_the_best_of_its_samples(one: Translator) -> None:
    search = Search(mbr=6, n_best=3, seed=2, epsilon=0.0)
    found = search_texts(one, SOURCES, ignore, search)
    (batch,) = source_batches(one.model, one.tokenizer, SOURCES[:1], max_length=64, hypotheses=6)
    samples = one.tokenizer.batch_decode(draw_samples(one.model, batch, 6, 0.0, 2), skip_special_tokens=True)
    expected = best_by_mean_chrf(samples, 3)
    assert [each.text for each in found[0]] == [samples[place] for place, _ in expected]
    assert [each.score for each in found[0]] == pytest.approx([mean for _, mean in expected])
    assert all(each.log_probability < 0 for each in found[0])
    same: Any = search_texts(one, SOURCES, ignore, search)
    assert same == found
