import math

import numpy as np
import pytest
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF

from paperformer.training.evaluation.domains import FEWEST, MOST, gather_others, score_domains, score_domains_of_text
from paperformer.training.evaluation.passages import PassageLosses, name_passages

RNG = np.random.default_rng(3)
REFERENCES = [" ".join(RNG.choice(list("abcdefgh"), size=12)) for _ in range(120)]
NAMES = ["law"] * 40 + ["news"] * 40 + ["law"] * 20 + ["tiny"] * 20


def outputs(spoiled: NDArray[np.bool_]) -> list[str]:
    """A word in three is wrong in the sentences that are spoiled, and one in six in others."""
    return [
        " ".join("x" if place % (3 if bad else 6) == 0 else word for place, word in enumerate(reference.split()))
        for reference, bad in zip(REFERENCES, spoiled, strict=True)
    ]


def test_scores_are_those_of_the_domain_s_own_sentences() -> None:
    hypotheses = outputs(RNG.random(120) < 0.4)
    found = {domain.name: domain for domain in score_domains(hypotheses, [REFERENCES], NAMES, resamples=20)}
    assert list(found) == ["law", "news", "tiny"]
    for name, domain in found.items():
        own = [place for place, other in enumerate(NAMES) if other == name]
        texts, references = [hypotheses[place] for place in own], [[REFERENCES[place] for place in own]]
        bleu, chrf = domain.scores
        assert bleu.value == pytest.approx(BLEU(force=True).corpus_score(texts, references).score)
        assert chrf.value == pytest.approx(CHRF().corpus_score(texts, references).score)
        assert chrf.count == len(own)
        assert chrf.confidence is not None
        assert abs(chrf.confidence.mean - chrf.value) < 4 * chrf.confidence.half_width


def test_a_domain_that_is_worse_is_found_and_no_other() -> None:
    law, news, tiny = score_domains(outputs(np.array(NAMES) == "law"), [REFERENCES], NAMES, resamples=400)
    assert law.is_worse
    assert law.p_worse == pytest.approx(3 / 401)  # never in 400 resamples, three domains
    assert not news.is_worse
    assert not tiny.is_worse
    assert tiny.p_worse == 1


def test_of_one_model_on_one_kind_of_text_no_part_is_worse() -> None:
    """Names that mean nothing: in 5 % of the cases at most one of them is called worse."""
    false_alarms = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1000, 1100, size=120)
        losses = PassageLosses(nats=rng.gamma(2.0, 200.0, size=120), tokens=sizes // 4, bytes=sizes, sha256="")
        names = rng.choice(["a", "b", "c"], size=120).tolist()
        false_alarms += any(part.is_worse for part in score_domains_of_text(losses, names, resamples=100))
    assert false_alarms <= 8  # of 60; more have a probability of 0.3 % where each has 5 %


def test_a_few_sentences_and_one_domain_are_not_compared() -> None:
    names = ["rest"] * (120 - FEWEST + 1) + ["few"] * (FEWEST - 1)
    spoiled = outputs(np.array(names) == "few")
    rest, few = score_domains(spoiled, [REFERENCES], names, resamples=50)
    assert few.p_worse is None
    assert not few.is_worse
    assert rest.p_worse is not None
    (alone,) = score_domains(spoiled, [REFERENCES], ["all"] * 120)
    assert alone.p_worse is None
    assert alone.scores[0].confidence is None


def test_a_passage_that_begins_at_a_border_belongs_to_what_follows() -> None:
    counts = np.array([10, 10, 5])
    losses = PassageLosses(nats=counts.astype(float), tokens=counts, bytes=counts, sha256="")
    assert name_passages(losses, [10, 15], ["plays", "sonnets"]) == ["plays", "sonnets", "sonnets"]


def test_text_is_compared_by_bits_a_byte() -> None:
    sizes = RNG.integers(1000, 1100, size=60)
    costs = np.where(np.arange(60) < 30, 0.5, 0.9) + RNG.normal(0, 0.05, size=60)
    losses = PassageLosses(nats=costs * sizes, tokens=sizes // 4, bytes=sizes, sha256="")
    names = name_passages(losses, [int(sizes[:30].sum()) - 10, int(sizes[30:].sum()) + 10], ["plays", "sonnets"])
    assert names == ["plays"] * 30 + ["sonnets"] * 30  # the passage that crosses the border begins before it
    plays, sonnets = score_domains_of_text(losses, names, resamples=200)
    assert plays.scores[0].value == pytest.approx(losses.nats[:30].sum() / sizes[:30].sum() / math.log(2))
    assert plays.scores[0].count == sizes[:30].sum()
    assert (plays.is_worse, sonnets.is_worse) == (False, True)


def test_of_many_domains_the_smaller_ones_are_one() -> None:
    few = [f"domain {number}" for number in range(MOST)]
    assert gather_others(few) == few
    many = [f"domain {number}" for number in range(MOST + 8) for _ in range(1 + (number % 2))]
    gathered = gather_others(many)
    assert len(set(gathered)) == MOST
    named = [here for here, there in zip(many, gathered, strict=True) if here == there]
    assert set(gathered) - set(named) == {"9 others together"}
    assert set(named) == {f"domain {number}" for number in range(MOST + 8) if number % 2} | {"domain 0"}
