"""Texts that a language model writes token by token, and that it reads."""

import math
from typing import Any

import pytest
import torch

import paperformer
from paperformer.api.text_scores import evaluate_text
from paperformer.demo import surprisal
from paperformer.demo.continuing import Dials, choose, continue_text
from paperformer.demo.surprisal import read_surprisals
from paperformer.training.console.input_error import InputError

LONG = "A dog runs on the beach. Two men talk. " * 8


def test_greedy_text_is_that_of_generate(lm: Any) -> None:
    steps = list(continue_text(lm.model, lm.tokenizer, "A dog", Dials(temperature=0), max_new_tokens=12, seed=1))
    expected = paperformer.generate(lm.model, "A dog", 12, temperature=0, tokenizer=lm.tokenizer)
    assert "A dog" + "".join(step.text for step in steps) == expected.rstrip("\ufffd")
    for step in steps:
        assert step.chosen == step.candidates[0]
        assert step.chosen.chance == 1.0
        assert 0 < step.chosen.probability < 1


def test_dials_are_looked_at_before_each_token(lm: Any) -> None:
    dials = Dials(temperature=5.0, top_p=1.0)
    coming = continue_text(lm.model, lm.tokenizer, "A dog", dials, max_new_tokens=20, seed=3)
    assert next(coming).chosen.chance < 1
    dials.temperature = 0
    assert next(coming).chosen.chance == 1.0
    dials.is_stopped = True
    assert list(coming) == []


def test_a_seed_gives_the_same_text(lm: Any) -> None:
    texts = [
        "".join(
            step.text
            for step in continue_text(lm.model, lm.tokenizer, "A", Dials(1.5, 1.0), max_new_tokens=20, seed=seed)
        )
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_chances_are_those_of_the_nucleus_at_the_temperature() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    generator = torch.Generator().manual_seed(0)
    _, best, probabilities, chances = choose(logits, 0.5, 0.9, generator)
    assert best == [0, 1, 2, 3]
    torch.testing.assert_close(probabilities, logits.softmax(-1))
    heated = (logits / 0.5).softmax(-1)  # 0.865, 0.117, ...: the first two reach 0.9
    torch.testing.assert_close(chances, torch.cat([heated[:2] / heated[:2].sum(), torch.zeros(2)]))
    drawn = [choose(logits, 1.0, 1.0, generator)[0] for _ in range(2000)]
    assert drawn.count(0) / 2000 == pytest.approx(float(probabilities[0]), abs=0.04)


def test_a_text_ends_where_the_model_does(lm: Any) -> None:
    longest = lm.model.config.max_position_embeddings
    steps = list(continue_text(lm.model, lm.tokenizer, "A", Dials(1.0, 1.0), max_new_tokens=500, seed=5))
    assert 0 < len(steps) <= longest
    assert list(continue_text(lm.model, lm.tokenizer, LONG, Dials(), max_new_tokens=3, seed=1))


@pytest.mark.parametrize("text", ["A dog runs on the beach.", LONG])
def test_surprisals_are_the_loss(lm: Any, text: str) -> None:
    found = read_surprisals(lm.model, lm.tokenizer, text)
    assert "".join(token.text for token in found.tokens) == text
    assert None not in found.nats
    (loss, *_) = evaluate_text(lm.model, text, tokenizer=lm.tokenizer, end_marks=False)
    assert loss.count == len(found.nats)
    assert math.fsum(found.nats) / loss.count == pytest.approx(loss.value, rel=1e-4)  # type: ignore[arg-type]
    assert found.perplexity == pytest.approx(math.exp(loss.value), rel=1e-4)
    bits = loss.value * loss.count / math.log(2) / len(text.encode())
    assert found.bits_per_byte == pytest.approx(bits, rel=1e-4)


def test_of_a_text_that_is_too_long_the_beginning_is_read(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surprisal, "MOST_TOKENS", 10)
    found = read_surprisals(lm.model, lm.tokenizer, LONG)
    assert len(found.tokens) == 10 < found.all_tokens


def test_no_text_is_refused(lm: Any) -> None:
    with pytest.raises(InputError, match="there is no text to read"):
        read_surprisals(lm.model, lm.tokenizer, "")
