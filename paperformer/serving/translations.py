"""The route `/translate`: texts of any length, the best translations of each."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from .engines.translation import Piece, Translation, TranslationEngine, TranslationOptions
from .errors import RequestError
from .exchange import Exchange
from .requests import TranslationRequest
from .scheduler import Scheduler
from .streams import respond


def translation_routes(
    scheduler: Scheduler, engine: TranslationEngine, defaults: TranslationOptions, prefix: str
) -> APIRouter:
    """The route.

    Args:
        scheduler: who runs the engine.
        engine: what translates.
        defaults: what holds where a request says nothing.
        prefix: the same for what is put before texts.
    """
    router = APIRouter()

    @router.post("/translate", response_model=None)
    async def translate(request: Request, asked: TranslationRequest) -> Response | dict[str, Any]:
        """Translations of a text, or of each of several."""
        texts = [asked.text] if isinstance(asked.text, str) else asked.text
        options = _options(asked, defaults)
        own_prefix = prefix if asked.prefix is None else asked.prefix
        pieces = await run_in_threadpool(lambda: [engine.pieces(text, own_prefix, options) for text in texts])
        exchange = Exchange(scheduler, request)
        exchange.submit([piece for own in pieces for piece in own])
        answers = _answers(exchange, pieces, options)
        if asked.stream:
            return respond(answers)
        return {
            "translations": [found["translations"] for found in sorted([each async for each in answers], key=_index)]
        }

    return router


def _index(answer: dict[str, Any]) -> int:
    return answer["index"]


def _options(asked: TranslationRequest, defaults: TranslationOptions) -> TranslationOptions:
    num_beams = defaults.num_beams if asked.num_beams is None else asked.num_beams
    if asked.num_return_sequences > num_beams:
        raise RequestError(
            422,
            f"'num_return_sequences' is {asked.num_return_sequences}, and 'num_beams' {num_beams}; a search finds "
            "no more translations than it has beams",
            param="num_return_sequences",
        )
    return TranslationOptions(
        num_beams=num_beams,
        length_penalty=defaults.length_penalty if asked.length_penalty is None else asked.length_penalty,
        num_return_sequences=asked.num_return_sequences,
        max_new_tokens=asked.max_new_tokens,
        with_scores=asked.scores or asked.num_return_sequences > 1,
    )


async def _answers(
    exchange: Exchange, pieces: Sequence[Sequence[Piece]], options: TranslationOptions
) -> AsyncIterator[dict[str, Any]]:
    """The translations of each text, as soon as all of its pieces are there."""
    owners = [(index, place) for index, own in enumerate(pieces) for place in range(len(own))]
    found: list[list[list[Translation]]] = [[[] for _ in own] for own in pieces]
    for index, own in enumerate(pieces):
        if not own:
            yield {"index": index, "translations": _join([], options)}
    async for number, _, translations in exchange.events():
        index, place = owners[number]
        found[index][place] = translations
        if all(found[index]):
            tokens = sum(translation.tokens for piece in found[index] for translation in piece)
            exchange.measurements.tokens.labels("out").inc(tokens)
            yield {"index": index, "translations": _join(found[index], options)}


def _join(pieces: Sequence[Sequence[Translation]], options: TranslationOptions) -> list[dict[str, Any]]:
    """The translations of a text from those of its pieces: the first from the first of each, and so on.

    The score is the mean of the pieces'. As each piece has its best first, so has the text.
    """
    joined = []
    for rank in range(options.num_return_sequences):
        ranked = [piece[rank] for piece in pieces]
        answer: dict[str, Any] = {"text": " ".join(each.text for each in ranked)}
        if options.with_scores:
            scores = [each.score or 0.0 for each in ranked]
            answer["score"] = sum(scores) / len(scores) if scores else 0.0
        joined.append(answer)
    return joined
