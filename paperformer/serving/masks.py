"""The route `/fill-mask`: what an encoder takes for likely at the masks of a text."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from .engines.masks import MaskedText, MaskEngine
from .errors import RequestError
from .exchange import Exchange
from .requests import MaskRequest
from .scheduler import Scheduler


def mask_routes(scheduler: Scheduler, engine: MaskEngine) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.post("/fill-mask", response_model=None)
    async def fill_mask(request: Request, asked: MaskRequest) -> dict[str, Any]:
        """The likeliest tokens at each mask of each text."""
        texts = [asked.text] if isinstance(asked.text, str) else asked.text
        ids = await run_in_threadpool(engine.encode, texts)
        for number, row in enumerate(ids):
            if not engine.count_masks(row):
                raise RequestError(422, f"text {number + 1} has no mask; write {engine.mask} in it", param="text")
            if len(row) > engine.longest:
                message = f"text {number + 1} has {len(row):,} tokens; the model takes {engine.longest:,}"
                raise RequestError(422, message, param="text")
        exchange = Exchange(scheduler, request)
        exchange.submit([MaskedText(tuple(row), asked.top_k) for row in ids])
        results = await exchange.results()
        return {"fillings": [[[asdict(each) for each in mask] for mask in masks] for masks in results]}

    return router
