"""The routes `/v1/completions` and `/v1/models`, as OpenAI's API has them, so that its clients work."""

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from itertools import accumulate
from secrets import randbits
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from .engines.text import Continuation, Prompt, Sampling, TextEngine
from .errors import RequestError
from .exchange import Exchange
from .requests import CompletionRequest
from .scheduler import Scheduler
from .streams import respond


def completion_routes(scheduler: Scheduler, engine: TextEngine, name: str) -> APIRouter:
    """The route that continues texts.

    Args:
        scheduler: who runs the engine.
        engine: what writes.
        name: of the model.
    """
    router = APIRouter()

    @router.post("/v1/completions", response_model=None)
    async def complete(request: Request, asked: CompletionRequest) -> Response | dict[str, Any]:
        """Continuations of a prompt, or of each of several."""
        _check(asked, name)
        ids = await run_in_threadpool(_tokens, engine, asked)
        works = [work for row in ids for work in _works(row, asked, engine)]
        exchange = Exchange(scheduler, request)
        exchange.submit(works)
        reply = _Reply(name, asked, [engine.decode(row) if asked.echo else "" for row in ids])
        if asked.stream:
            return respond(reply.parts(exchange, works))
        results: list[Continuation] = await exchange.results()
        exchange.measurements.tokens.labels("out").inc(sum(result.tokens for result in results))
        choices = [reply.choice(number, result) for number, result in enumerate(results)]
        return reply.head | {"choices": choices, "usage": _usage(works, results, asked.n or 1)}

    return router


def model_routes(name: str) -> APIRouter:
    """The route that names the model."""
    router = APIRouter()
    entry = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "paperformer"}

    @router.get("/v1/models", response_model=None)
    async def models() -> dict[str, Any]:
        """The one model that there is."""
        return {"object": "list", "data": [entry]}

    @router.get("/v1/models/{model:path}", response_model=None)
    async def model(model: str) -> dict[str, Any]:
        """A model by its name."""
        _check_name(model, name)
        return entry

    return router


def _check(asked: CompletionRequest, name: str) -> None:
    if asked.model is not None:
        _check_name(asked.model, name)
    if (field := asked.unsupported()) is not None:
        raise RequestError(422, f"'{field}' is not supported by this server; leave it out", param=field)
    if asked.stream and asked.logprobs is not None:
        raise RequestError(422, "'logprobs' come with no 'stream'; leave one of them out", param="logprobs")
    if asked.stream_options is not None and not asked.stream:
        raise RequestError(422, "'stream_options' are for 'stream': true", param="stream_options")


def _check_name(model: str, name: str) -> None:
    if model != name:
        raise RequestError(404, f"there is no model {model!r} here; this server has {name!r}", param="model")


def _tokens(engine: TextEngine, asked: CompletionRequest) -> list[list[int]]:
    """The prompts' tokens: those of texts, or those that are given.

    Raises:
        RequestError: for numbers that are no tokens.
    """
    prompt: Any = asked.prompt
    if isinstance(prompt, str):
        return engine.encode([prompt])
    if isinstance(prompt[0], str):
        return engine.encode(prompt)
    rows: list[list[int]] = [prompt] if isinstance(prompt[0], int) else prompt
    wrong = next((token for row in rows for token in row if not 0 <= token < engine.vocab_size), None)
    if wrong is not None:
        raise RequestError(
            422,
            f"'prompt' has the token {wrong}; the model has those from 0 to {engine.vocab_size - 1}",
            param="prompt",
        )
    return rows


def _works(ids: Sequence[int], asked: CompletionRequest, engine: TextEngine) -> list[Prompt]:
    """The `n` continuations of a prompt."""
    room = engine.longest - len(ids)
    max_tokens = room if asked.max_tokens is None else asked.max_tokens
    if max_tokens > room or room < 1:
        raise RequestError(
            422,
            f"the prompt has {len(ids):,} tokens and 'max_tokens' is {max(1, max_tokens):,}; the model takes "
            f"{engine.longest:,} in all",
            param="max_tokens" if room > 0 else "prompt",
        )
    first = randbits(62) if asked.seed is None else asked.seed
    stops = (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ())
    return [
        Prompt(
            ids=tuple(ids),
            max_tokens=max_tokens,
            sampling=Sampling(
                1.0 if asked.temperature is None else asked.temperature,
                1.0 if asked.top_p is None else asked.top_p,
                (first + number) % 2**63,
            ),
            stops=stops,
            logprobs=asked.logprobs,
            is_streamed=bool(asked.stream),
        )
        for number in range(asked.n or 1)
    ]


def _usage(works: Sequence[Prompt], results: Sequence[Continuation], n: int) -> dict[str, int]:
    read = sum(len(work.ids) for work in works[::n])
    written = sum(result.tokens for result in results)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


class _Reply:
    """An answer in OpenAI's form.

    Args:
        name: of the model.
        asked: the request.
        prompts: what stands before the continuations, if that is wanted.
    """

    def __init__(self, name: str, asked: CompletionRequest, prompts: Sequence[str]):
        self.asked, self.prompts, self.n = asked, prompts, asked.n or 1
        self.head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": name,
        }

    def choice(self, number: int, result: Continuation) -> dict[str, Any]:
        """A finished continuation."""
        text = self.prompts[number // self.n] + result.text
        logprobs = None
        if self.asked.logprobs is not None:
            starts = accumulate((len(each.token) for each in result.choices), initial=len(text) - len(result.text))
            logprobs = {
                "tokens": [each.token for each in result.choices],
                "token_logprobs": [each.logprob for each in result.choices],
                "top_logprobs": [each.top for each in result.choices] if self.asked.logprobs else None,
                "text_offset": list(starts)[:-1],
            }
        return {"text": text, "index": number, "logprobs": logprobs, "finish_reason": result.finish_reason}

    async def parts(self, exchange: Exchange, works: Sequence[Prompt]) -> AsyncIterator[dict[str, Any]]:
        """The continuations as they come."""
        with_usage = self.asked.stream_options is not None and self.asked.stream_options.include_usage
        head = self.head | ({"usage": None} if with_usage else {})
        results: list[Continuation] = []

        def part(number: int, text: str, reason: str | None = None) -> dict[str, Any]:
            choice = {"text": text, "index": number, "logprobs": None, "finish_reason": reason}
            return head | {"choices": [choice]}

        if self.asked.echo:
            for number in range(len(works)):
                yield part(number, self.prompts[number // self.n])
        async for number, is_finished, what in exchange.events():
            if is_finished:
                results.append(what)
                exchange.measurements.tokens.labels("out").inc(what.tokens)
            yield part(number, "" if is_finished else what, what.finish_reason if is_finished else None)
        if with_usage:
            yield head | {"choices": [], "usage": _usage(works, results, self.n)}
