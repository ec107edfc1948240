"""Models that write together, against themselves and against the definition."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, T5Config

from paperformer import InputError
from paperformer.decoding.ensemble import Ensemble, make_ensemble
from paperformer.decoding.search import Search, search_texts
from paperformer.decoding.translator import Translator
from paperformer.modeling.decoding import beam_search

SOURCES = ["A dog runs.", "", "Two men talk on the beach.", "A dog talk."]


def ignore(index: int, what: str) -> None:
    pass


def together(*translators: Translator) -> Translator:
    named = [(f"model {place}", each.model, (each.tokenizer, None)) for place, each in enumerate(translators)]
    return Translator(make_ensemble(named), translators[0].tokenizer)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_of_a_model_with_itself_it_is_the_model(one: Translator, num_beams: int) -> None:
    search = Search(num_beams=num_beams, n_best=num_beams)
    expected = search_texts(one, SOURCES, ignore, search)
    found = search_texts(together(one, one), SOURCES, ignore, search)
    for own, others in zip(found, expected, strict=True):
        assert [each.text for each in own] == [each.text for each in others]
        assert [each.score for each in own] == pytest.approx([each.score for each in others], rel=1e-4)


def mean_log_probs(models: list[Any], source: Tensor, target: Tensor) -> Tensor:
    """By the definition, of one sequence, without a cache."""
    with torch.no_grad():
        probabilities = [
            model(input_ids=source, decoder_input_ids=target).logits[0, -1].double().softmax(-1) for model in models
        ]
    return (sum(probabilities) / len(models)).log()


def search_slowly(models: list[Any], source: Tensor, beams: int, length: int) -> list[tuple[float, list[int]]]:
    """Sequences of so many tokens, none of which is the end mark."""
    found = [(0.0, [1])]
    for _ in range(length):
        longer = []
        for score, ids in found:
            log_probs = mean_log_probs(models, source, torch.tensor([ids]))
            log_probs[2] = -math.inf
            longer += [(score + float(log_probs[token]), [*ids, token]) for token in range(len(log_probs))]
        found = sorted(longer, reverse=True)[:beams]
    return found


@pytest.mark.parametrize("num_beams", [1, 3])
def test_of_two_it_is_the_mean_of_their_probabilities(
    one: Translator, other: Translator, num_beams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    search = beam_search.beam_search
    monkeypatch.setattr(beam_search, "beam_search", lambda *args: calls.append(1) or search(*args))
    ensemble = together(one, other).model
    source = one.tokenizer(SOURCES[2], return_tensors="pt").input_ids
    options = {"do_sample": False, "max_new_tokens": 5, "suppress_tokens": [2], "num_return_sequences": num_beams}
    found = ensemble.generate(source, num_beams=num_beams, **options)
    expected = search_slowly([one.model, other.model], source, num_beams, 5)
    assert found.tolist() == [ids for _, ids in expected]
    assert len(calls) == (num_beams > 1)  # by our own search


def test_its_logits_are_log_probabilities(one: Translator, other: Translator) -> None:
    ensemble = together(one, other).model
    source = one.tokenizer(SOURCES[:1], return_tensors="pt").input_ids
    target = torch.tensor([[1, 7, 30]])
    with torch.no_grad():
        logits = ensemble(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(1, 3))
    expected = mean_log_probs([one.model, other.model], source, target)
    torch.testing.assert_close(logits[0, -1].double(), expected, rtol=1e-4, atol=1e-5)


def test_models_that_do_not_belong_together(one: Translator, two_vocabularies: Any) -> None:
    others = (two_vocabularies.tokenizer, two_vocabularies.target_tokenizer)
    with pytest.raises(InputError, match=r"^second has another vocabulary than first; the models of an ensemble must"):
        make_ensemble([("first", one.model, (one.tokenizer, None)), ("second", two_vocabularies.model, others)])
    size = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 300}
    foreign = AutoModelForSeq2SeqLM.from_config(T5Config(**size))
    with pytest.raises(InputError, match=r"^t5 holds a t5; an ensemble is of paperformer's models, which paperformer"):
        make_ensemble([("first", one.model, (one.tokenizer, None)), ("t5", foreign, (one.tokenizer, None))])


def test_the_hash_does_not_depend_on_what_was_tokenised_before(one: Translator, other: Translator) -> None:
    one.tokenizer(SOURCES, padding=True, truncation=True, max_length=9)
    assert isinstance(together(one, other).model, Ensemble)
