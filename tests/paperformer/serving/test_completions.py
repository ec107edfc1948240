"""The routes in OpenAI's form."""

import json
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from transformers import TemperatureLogitsWarper, TopPLogitsWarper

import paperformer
from paperformer.serving.engines.sampling import RowwiseSampling
from paperformer.serving.engines.text import Sampling

PROMPTS = ["A dog", "Zwei Männer reden. Zwei", ""]


def ask(client: TestClient, **body: Any) -> Any:
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def texts_of(answer: Any) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


def stream(client: TestClient, **body: Any) -> list[Any]:
    with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        *events, end, last = response.read().decode().split("\n\n")
    assert (end, last) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_the_likeliest_texts_are_those_of_generate(writer: TestClient, lm: Any) -> None:
    expected = [paperformer.generate(lm.folder, prompt, max_new_tokens=12, temperature=0) for prompt in PROMPTS]
    answer = ask(writer, model="tiny.lm", prompt=PROMPTS, max_tokens=12, temperature=0, echo=True)
    assert texts_of(answer) == expected
    assert texts_of(ask(writer, prompt=PROMPTS[0], max_tokens=12, temperature=0)) == [expected[0][len(PROMPTS[0]) :]]
    tokens = [1, *lm.tokenizer(PROMPTS[0], add_special_tokens=False).input_ids]
    by_tokens = ask(writer, prompt=[tokens, tokens], max_tokens=12, temperature=0, echo=True)
    assert texts_of(by_tokens) == [expected[0]] * 2
    assert texts_of(ask(writer, prompt=tokens, max_tokens=12, temperature=0, echo=True)) == [expected[0]]


def test_an_answer_has_openai_s_form(writer: TestClient) -> None:
    answer = ask(writer, prompt=PROMPTS[:2], max_tokens=3, n=2, seed=1)
    assert set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    assert (answer["object"], answer["model"], answer["id"][:5]) == ("text_completion", "tiny.lm", "cmpl-")
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert {tuple(sorted(choice)) for choice in answer["choices"]} == {("finish_reason", "index", "logprobs", "text")}
    assert {choice["finish_reason"] for choice in answer["choices"]} <= {"stop", "length"}
    usage = answer["usage"]
    assert usage["completion_tokens"] <= 12
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    models = writer.get("/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["tiny.lm"]
    assert writer.get("/v1/models/tiny.lm").json() == models["data"][0]


def test_a_seed_decides_whoever_shares_the_batch(writer: TestClient) -> None:
    alone = texts_of(ask(writer, prompt=PROMPTS[0], max_tokens=20, seed=7))
    assert alone == texts_of(ask(writer, prompt=PROMPTS[0], max_tokens=20, seed=7))
    assert alone == texts_of(ask(writer, prompt=[PROMPTS[0], PROMPTS[1]], max_tokens=20, seed=7))[:1]
    assert len(set(texts_of(ask(writer, prompt=PROMPTS[0], max_tokens=20, n=4, seed=7)))) == 4
    assert texts_of(ask(writer, prompt=PROMPTS[0], max_tokens=20)) != texts_of(
        ask(writer, prompt=PROMPTS[0], max_tokens=20)
    )


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 0.9), (2.0, 0.6), (1.0, 0.05)])
def test_samples_have_the_distribution_of_transformers_warpers(temperature: float, top_p: float) -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 6)
    warped = TemperatureLogitsWarper(temperature)(torch.empty(1, 0), logits)  # type: ignore[arg-type]
    if top_p < 1:
        warped = TopPLogitsWarper(top_p)(torch.empty(1, 0), warped)  # type: ignore[arg-type]
    expected = warped.softmax(-1)[0]
    count = 4_000
    rows = [Sampling(temperature, top_p, seed) for seed in range(count)]
    chosen = RowwiseSampling(rows)(torch.empty(count, 0), logits.repeat(count, 1)).argmax(-1)  # type: ignore[arg-type]
    found = torch.bincount(chosen, minlength=6) / count
    assert (found[expected == 0] == 0).all()
    assert torch.allclose(found, expected, atol=4 * (0.25 / count) ** 0.5)


def test_padding_is_not_seen(writer: TestClient) -> None:
    options: dict[str, Any] = {"max_tokens": 3, "temperature": 0, "logprobs": 1}
    (alone,) = ask(writer, prompt=PROMPTS[0], **options)["choices"]
    padded = ask(writer, prompt=[PROMPTS[0], "Ein Hund läuft am Strand. " * 2], **options)["choices"][0]
    assert padded["logprobs"]["tokens"] == alone["logprobs"]["tokens"]
    expected = pytest.approx(alone["logprobs"]["token_logprobs"], abs=2e-6)
    assert padded["logprobs"]["token_logprobs"] == expected


def test_a_stream_is_the_same_text_in_parts(writer: TestClient) -> None:
    options = {"prompt": PROMPTS[:2], "max_tokens": 15, "seed": 3, "n": 2, "temperature": 1.5}
    whole = ask(writer, **options)
    parts = stream(writer, **options, stream_options={"include_usage": True})
    assert parts[-1]["usage"] == whole["usage"]
    assert parts[-1]["choices"] == []
    texts, reasons = [""] * 4, [None] * 4
    for part in parts[:-1]:
        assert part["usage"] is None
        (choice,) = part["choices"]
        assert reasons[choice["index"]] is None
        texts[choice["index"]] += choice["text"]
        reasons[choice["index"]] = choice["finish_reason"]
    assert texts == texts_of(whole)
    assert reasons == [choice["finish_reason"] for choice in whole["choices"]]
    assert len(parts) > 10


def test_a_text_ends_before_a_stop_text(writer: TestClient) -> None:
    (text,) = texts_of(ask(writer, prompt=PROMPTS[0], max_tokens=20, seed=5))
    stop = text[6:8]
    place = text.find(stop)
    answer = ask(writer, prompt=PROMPTS[0], max_tokens=20, seed=5, stop=["never there", stop])
    assert answer["choices"][0] == {
        "text": text[:place], "index": 0, "logprobs": None, "finish_reason": "stop",
    }  # fmt: skip
    assert answer["usage"]["completion_tokens"] < 20
    parts = stream(writer, prompt=PROMPTS[0], max_tokens=20, seed=5, stop=stop)
    assert "".join(part["choices"][0]["text"] for part in parts) == text[:place]


def test_log_probabilities_are_the_model_s(writer: TestClient, lm: Any) -> None:
    answer = ask(writer, prompt=PROMPTS[0], max_tokens=4, temperature=0, logprobs=2)
    told = answer["choices"][0]["logprobs"]
    ids = torch.tensor([[1, *lm.tokenizer(PROMPTS[0], add_special_tokens=False).input_ids]])
    for number, (token, value) in enumerate(zip(told["tokens"], told["token_logprobs"], strict=True)):
        log_probs = lm.model(ids).logits[0, -1].log_softmax(-1)
        best = log_probs.topk(2)
        assert value == pytest.approx(best.values[0].item(), abs=1e-4)
        assert token == lm.tokenizer.decode([int(best.indices[0])])
        expected = {
            lm.tokenizer.decode([i]): v
            for i, v in zip(*map(torch.Tensor.tolist, (best.indices, best.values)), strict=True)
        }
        assert told["top_logprobs"][number] == pytest.approx(expected, abs=1e-4)
        ids = torch.cat((ids, best.indices[None, :1]), 1)
    assert told["text_offset"] == [sum(map(len, told["tokens"][:number])) for number in range(4)]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, {"prompt": "a", "model": "gpt"}, "there is no model 'gpt' here; this server has 'tiny.lm'"),
        (422, {}, "'prompt' is missing"),
        (422, {"prompt": "a", "max_token": 3}, "did you mean max_tokens?"),
        (422, {"prompt": "a", "max_tokens": 63}, "the prompt has 2 tokens and 'max_tokens' is 63; the model takes 64"),
        (422, {"prompt": [1] * 64}, "the model takes 64 in all"),
        (422, {"prompt": [1, 9999]}, "'prompt' has the token 9999; the model has those from 0 to "),
        (422, {"prompt": [[1], [-1]]}, "'prompt' has the token -1"),
        (422, {"prompt": "a", "suffix": "b"}, "'suffix' is not supported by this server; leave it out"),
        (422, {"prompt": "a", "best_of": 3}, "'best_of' is not supported"),
        (422, {"prompt": "a", "temperature": -1}, "'temperature' is not as it should be"),
        (422, {"prompt": "a", "top_p": 0}, "'top_p' is not as it should be: must be greater than 0"),
        (422, {"prompt": "a", "stop": [""]}, "'stop' is not as it should be"),
        (422, {"prompt": "a", "logprobs": 1, "stream": True}, "'logprobs' come with no 'stream'"),
        (413, {"prompt": ["a"] * 1024, "n": 2, "max_tokens": 60}, "send several requests"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_asked_is_told_in_a_line(writer: TestClient, status: int, body: Any, said: str) -> None:
    response = writer.post("/v1/completions", json=body)
    assert response.status_code == status
    assert said in response.json()["error"]["message"]
