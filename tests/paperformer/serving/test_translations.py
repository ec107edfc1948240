"""The route that translates."""

import json
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

import paperformer
from paperformer.serving.application import make_application
from paperformer.serving.engines.loading import load_engine
from paperformer.training.evaluation.decoding import longest_translation

TEXTS = ["A dog runs on the beach.", "", "Two men talk.", " A man \n", "x"]
LONG = "Two men talk. A dog runs on the beach, and two men talk on the beach. " * 3


def texts_of(answer: Any) -> list[list[str]]:
    return [[each["text"] for each in own] for own in answer["translations"]]


def ask(client: TestClient, **body: Any) -> Any:
    response = client.post("/translate", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_translations_are_those_of_translate(translator: TestClient, seq2seq: Any) -> None:
    expected = paperformer.translate(seq2seq.folder, [*TEXTS, LONG], num_beams=3)
    assert texts_of(ask(translator, text=[*TEXTS, LONG])) == [[text] for text in expected]
    assert ask(translator, text=TEXTS[0]) == {"translations": [[{"text": expected[0]}]]}
    assert expected[-1].count(" ") > 3  # in several pieces


def test_prefix_beams_and_penalty_are_the_request_s(translator: TestClient, seq2seq: Any) -> None:
    options = {"num_beams": 2, "length_penalty": -3.0, "prefix": ">>de<< "}
    expected = paperformer.translate(seq2seq.folder, [*TEXTS, LONG], **options)
    assert texts_of(ask(translator, text=[*TEXTS, LONG], **options)) == [[text] for text in expected]
    assert expected != paperformer.translate(seq2seq.folder, [*TEXTS, LONG], num_beams=3)


def test_a_model_with_two_vocabularies(two_vocabularies: Any) -> None:
    expected = paperformer.translate(two_vocabularies.folder, TEXTS, 5, 1.0)
    with TestClient(make_application(load_engine(str(two_vocabularies.folder)), "two")) as client:
        assert texts_of(ask(client, text=TEXTS)) == [[text] for text in expected]


@pytest.mark.parametrize("penalty", [1.0, 0.5])
def test_several_translations_have_the_scores_of_the_search(
    translator: TestClient, seq2seq: Any, penalty: float
) -> None:
    ids = torch.tensor([seq2seq.tokenizer(TEXTS[0]).input_ids])
    searched = seq2seq.model.generate(
        input_ids=ids,
        num_beams=3,
        num_return_sequences=3,
        max_new_tokens=longest_translation(ids.shape[1], 64),
        length_penalty=penalty,
        return_dict_in_generate=True,
        output_scores=True,
    )
    (found,) = ask(translator, text=TEXTS[0], num_return_sequences=3, length_penalty=penalty)["translations"]
    assert [each["text"] for each in found] == seq2seq.tokenizer.batch_decode(
        searched.sequences, skip_special_tokens=True
    )
    assert [each["score"] for each in found] == pytest.approx(searched.sequences_scores.tolist(), abs=1e-4)
    (best,) = ask(translator, text=TEXTS[0], scores=True, length_penalty=penalty)["translations"]
    assert best == [{"text": found[0]["text"], "score": pytest.approx(found[0]["score"], abs=1e-4)}]


def test_alternatives_of_a_long_text_are_put_together_best_first(translator: TestClient) -> None:
    (found,) = ask(translator, text=LONG, num_return_sequences=2)["translations"]
    assert found[0]["score"] >= found[1]["score"]
    assert texts_of(ask(translator, text=LONG)) == [[found[0]["text"]]]


def test_a_translation_is_no_longer_than_was_asked_for(translator: TestClient, seq2seq: Any) -> None:
    ids = torch.tensor([seq2seq.tokenizer(TEXTS[0]).input_ids])
    (short,) = seq2seq.tokenizer.batch_decode(
        seq2seq.model.generate(input_ids=ids, num_beams=3, max_new_tokens=2), skip_special_tokens=True
    )
    assert texts_of(ask(translator, text=TEXTS[0], max_new_tokens=2)) == [[short]]
    assert texts_of(ask(translator, text=TEXTS[0], max_new_tokens=10**9)) == texts_of(ask(translator, text=TEXTS[0]))


def test_a_stream_has_an_event_for_each_text(translator: TestClient) -> None:
    with translator.stream("POST", "/translate", json={"text": TEXTS, "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        *events, end, last = response.read().decode().split("\n\n")
    assert (end, last) == ("data: [DONE]", "")
    answers = [json.loads(event.removeprefix("data: ")) for event in events]
    assert sorted(answer["index"] for answer in answers) == list(range(len(TEXTS)))
    expected = ask(translator, text=TEXTS)["translations"]
    assert all(answer["translations"] == expected[answer["index"]] for answer in answers)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "'text' is missing"),
        ({"texts": ["a"], "text": "a"}, "'texts' is no field; did you mean text?"),
        ({"text": 5}, "'text' is not as it should be: must be a valid string; or must be a valid list"),
        ({"text": []}, "at least 1 item"),
        ({"text": ["a"] * 1025}, "at most 1024 items"),
        ({"text": "a\ud800"}, "half a character"),
        ({"text": "a", "num_beams": 0}, "'num_beams' is not as it should be: must be greater than or equal to 1"),
        ({"text": "a", "num_beams": "5"}, "must be a valid integer"),
        ({"text": "a", "length_penalty": float("inf")}, "'length_penalty' is not as it should be: "),
        ({"text": "a", "num_return_sequences": 4}, "'num_return_sequences' is 4, and 'num_beams' 3; "),
        ([], "the body must be a JSON object"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_asked_is_told_in_a_line(translator: TestClient, body: Any, said: str) -> None:
    response = translator.post("/translate", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    error = response.json()["error"]
    assert said in error["message"]
    assert "\n" not in error["message"]
    assert error["type"] == "invalid_request_error"


def test_random_bytes_are_refused(translator: TestClient) -> None:
    for body in (b"{", b"\xff\xfe", b"", b"null", b'{"text": "a"'):
        response = translator.post("/translate", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 422, body
        assert "JSON" in response.json()["error"]["message"]
