"""What holds for all routes: the token, sizes, times, failures, measurements; and the route for masks."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from starlette.testclient import TestClient

from paperformer.serving.application import make_application
from paperformer.serving.engines.loading import load_engine
from paperformer.serving.engines.translation import Translation, TranslationEngine
from paperformer.serving.limits import Limits
from paperformer.training.console.input_error import InputError


class Slow(TranslationEngine):
    """Takes a tenth of a second for a batch, or longer, and fails where a text has a token that it does not like."""

    def __init__(self, tokenizer: Any, disliked: int = -1):
        super().__init__(tokenizer, None, 64)
        self.disliked, self.computed = disliked, 0
        self.begun, self.may_go_on = Event(), Event()
        self.may_go_on.set()

    def run(self, tasks: Any) -> None:
        self.begun.set()
        time.sleep(0.1)
        assert self.may_go_on.wait(20)
        if any(self.disliked in task.work.ids for task in tasks):
            raise ValueError("a secret of the model")
        for task in tasks:
            if task.is_wanted:
                self.computed += 1
                task.finish([Translation(self.decode([list(task.work.ids)])[0], len(task.work.ids))])


def post(client: TestClient, text: Any = "A dog", **headers: str) -> Any:
    return client.post("/translate", json={"text": text}, headers=headers)


def test_a_token_is_asked_for_where_there_is_one(seq2seq: Any) -> None:
    with TestClient(make_application(Slow(seq2seq.tokenizer), "slow", token="s3cret")) as client:
        for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}):
            refused = post(client, **headers)
            assert refused.status_code == 401
            assert refused.headers["WWW-Authenticate"] == "Bearer"
            assert "Authorization: Bearer TOKEN" in refused.json()["error"]["message"]
            assert "s3cret" not in refused.text
        assert client.get("/v1/models").status_code == 401
        assert post(client, Authorization="Bearer s3cret").status_code == 200
        assert [client.get(route).status_code for route in ("/health", "/ready", "/metrics")] == [200] * 3


def test_what_is_too_large_is_refused(seq2seq: Any) -> None:
    limits = Limits(max_body_bytes=1000, max_request_tokens=100)
    with TestClient(make_application(Slow(seq2seq.tokenizer), "slow", limits)) as client:
        assert post(client, "A dog").status_code == 200
        by_bytes, by_tokens = post(client, "A dog runs." * 200), post(client, "A dog runs. " * 40)
        assert by_bytes.status_code == by_tokens.status_code == 413
        assert by_bytes.json()["error"]["message"] == "the request has more than 1,000 bytes; send several"
        assert "at most 100 are taken at once" in by_tokens.json()["error"]["message"]
        in_parts = client.post(
            "/translate", content=iter([b" " * 600] * 2), headers={"Content-Type": "application/json"}
        )
        assert in_parts.status_code == 413


def test_no_more_is_read_than_a_request_may_have(seq2seq: Any) -> None:
    application = make_application(Slow(seq2seq.tokenizer), "slow", Limits(max_body_bytes=1000))

    async def endless() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b" " * 600, "more_body": True}

    assert asyncio.run(asyncio.wait_for(_ask(application, receive=endless), 20)) == 413


def test_a_request_that_takes_too_long_is_given_up(seq2seq: Any) -> None:
    with TestClient(make_application(Slow(seq2seq.tokenizer), "slow", Limits(timeout=0.05))) as client:
        late = post(client)
        assert late.status_code == 504
        assert "not finished after 0.05 s" in late.json()["error"]["message"]


def test_a_failure_is_one_request_s_and_tells_nothing(seq2seq: Any, caplog: pytest.LogCaptureFixture) -> None:
    disliked = seq2seq.tokenizer("\x07").input_ids[-2]
    application = make_application(Slow(seq2seq.tokenizer, disliked), "slow", Limits(batch_wait=0.5))
    with TestClient(application) as client:
        failed = post(client, "\x07")
        assert failed.status_code == 500
        assert "secret" not in failed.text
        assert "a secret of the model" in caplog.text
        assert asyncio.run(_together(application, ["A dog", "\x07", "Two men"])) == [200, 500, 200]
        assert "paperformer_failed_batches_total 1.0" in client.get("/metrics").text


async def _together(application: Any, texts: list[str]) -> list[int]:
    return await asyncio.gather(*(_ask(application, text) for text in texts))


async def _ask(
    application: Any, text: str = "", leave: asyncio.Event | None = None, *, receive: Any = None, **options: Any
) -> int:
    """The status of an answer; the client leaves before it if it is told to."""
    status = 0
    body = iter([{"type": "http.request", "body": json.dumps({"text": text, **options}).encode(), "more_body": False}])

    async def send_body() -> Any:
        if (message := next(body, None)) is not None:
            return message
        await (leave or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/translate", "headers": headers, "query_string": b""}
    await application(
        {**scope, "http_version": "1.1", "scheme": "http", "asgi": {"version": "3.0"}}, receive or send_body, send
    )
    return status


def test_a_client_that_leaves_frees_its_place(seq2seq: Any) -> None:
    engine = Slow(seq2seq.tokenizer)
    engine.may_go_on.clear()
    application = make_application(engine, "slow", Limits(max_waiting=1, tokens_per_batch=1))
    scheduler = application.state.scheduler

    async def scene() -> list[int]:
        leave, held = asyncio.Event(), asyncio.create_task(_ask(application, "busy"))
        await _until(engine.begun.is_set)
        leaving = asyncio.create_task(_ask(application, "leaves", leave))
        await _until(lambda: not scheduler.has_room)
        refused = await _ask(application, "one too many")
        leave.set()
        await leaving
        taken = asyncio.create_task(_ask(application, "in its place"))
        await _until(lambda: not scheduler.has_room)
        engine.may_go_on.set()
        return [await held, refused, await taken]

    assert asyncio.run(scene()) == [200, 429, 200]
    assert engine.computed == 2
    assert b"paperformer_disconnected_total 1.0" in scheduler.measurements.text()
    scheduler.close(20)


def test_a_stream_that_is_left_ends(seq2seq: Any) -> None:
    engine = Slow(seq2seq.tokenizer)
    engine.may_go_on.clear()
    application = make_application(engine, "slow", Limits(tokens_per_batch=1))

    async def scene() -> None:
        leave = asyncio.Event()
        leaving = asyncio.create_task(_ask(application, "A dog", leave, stream=True))
        await _until(engine.begun.is_set)
        leave.set()
        await leaving

    asyncio.run(scene())
    engine.may_go_on.set()
    application.state.scheduler.close(20)
    assert engine.computed == 0
    assert b"paperformer_disconnected_total 1.0" in application.state.scheduler.measurements.text()


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.002)


def test_the_server_says_how_it_is(seq2seq: Any) -> None:
    application = make_application(Slow(seq2seq.tokenizer), "slow")
    with TestClient(application) as client:
        post(client, ["A dog", "Two men"])
        client.post("/nowhere")
        text = client.get("/metrics").text
        for line in (
            'paperformer_requests_total{route="/translate",status="200"} 1.0',
            'paperformer_requests_total{route="other",status="404"} 1.0',
            "paperformer_batch_rows_sum 2.0",
            "paperformer_waiting_requests 0.0",
            'paperformer_request_seconds_count{route="/translate"} 1.0',
        ):
            assert line in text
        assert client.get("/ready").json() == {"status": "ready"}
        application.state.scheduler.close(20)
        assert [client.get(route).status_code for route in ("/health", "/ready")] == [503, 503]
        assert post(client).status_code == 503


def test_other_paths_and_methods_are_told_what_there_is(translator: TestClient) -> None:
    missing, other = translator.post("/translations"), translator.get("/translate")
    assert missing.status_code == 404
    assert "there are /health, /metrics, /ready, /translate, /v1/models" in missing.json()["error"]["message"]
    assert (other.status_code, other.json()["error"]["message"]) == (405, "GET is not for /translate; use POST")


def test_masks_are_filled_in_as_the_pipeline_does(encoder_folder: Path) -> None:
    from transformers import pipeline

    engine = load_engine(str(encoder_folder))
    texts = ["A <mask> runs.", "Two men <mask>."]
    expected = [pipeline("fill-mask", str(encoder_folder), top_k=3)(text) for text in texts]
    with TestClient(make_application(engine, "tiny-encoder")) as client:
        answer = client.post("/fill-mask", json={"text": [*texts, "<mask> and <mask>"], "top_k": 3}).json()["fillings"]
        for own, pipelined in zip(answer, expected, strict=False):
            (mask,) = own
            assert [each["token"].strip() for each in mask] == [each["token_str"].strip() for each in pipelined]
            assert [each["probability"] for each in mask] == pytest.approx(
                [each["score"] for each in pipelined], rel=1e-4
            )
        assert [len(mask) for mask in answer[2]] == [3, 3]
        refused = client.post("/fill-mask", json={"text": ["<mask>", "none"]})
        assert refused.status_code == 422
        assert refused.json()["error"]["message"] == "text 2 has no mask; write <mask> in it"
        assert client.post("/fill-mask", json={"text": "<mask> dog" * 40}).status_code == 422


@pytest.mark.parametrize(
    ("field", "value"), [("timeout", 0), ("max_waiting", 0), ("batch_wait", -1), ("timeout", "nan")]
)
def test_limits_that_let_nothing_through_are_refused(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{field} is .*; it must be "):
        Limits(**{field: float(value)})
