"""The route `/translate`: texts of any length, the best translations of each."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from ..training.console.suggestions import suggest
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
        options = replace(_options(asked, defaults), first_token=_target_mark(asked, engine))
        src_lang = asked.src_lang or ""
        own_prefix = prefix if asked.prefix is None else asked.prefix
        pieces = await run_in_threadpool(lambda: [engine.pieces(text, own_prefix, options, src_lang) for text in texts])
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


def _target_mark(asked: TranslationRequest, engine: TranslationEngine) -> int | None:
    """The mark of the language that is asked for.

    Raises:
        RequestError: if the model has no such language, or has to be told one.
    """
    for field, code in (("src_lang", asked.src_lang), ("tgt_lang", asked.tgt_lang)):
        if code is None or code in engine.languages:
            continue
        codes = sorted(engine.languages)
        hint = suggest(code, codes, f"there are {', '.join(codes)}" if codes else "it has none; a tag is a 'prefix'")
        raise RequestError(422, f"'{field}' is {code}, which is no language of the model's; {hint}", param=field)
    if asked.tgt_lang is None and engine.needs_target:
        raise RequestError(422, "'tgt_lang' is missing; the model has to be told a language", param="tgt_lang")
    return None if asked.tgt_lang is None else engine.languages[asked.tgt_lang]


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
