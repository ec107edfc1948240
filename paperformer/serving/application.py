"""The server as an ASGI application: the routes of a model, and those that say how the server is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from .completions import completion_routes, model_routes
from .engines.engine import Engine
from .engines.masks import MaskEngine
from .engines.text import TextEngine
from .engines.translation import TranslationEngine, TranslationOptions
from .errors import RequestError
from .exchange import ClientGoneError
from .guards import Guards
from .limits import Limits
from .masks import mask_routes
from .measurements import Measurements
from .requests import explain
from .scheduler import Scheduler
from .translations import translation_routes


def make_application(
    engine: Engine,
    name: str,
    limits: Limits | None = None,
    *,
    token: str | None = None,
    defaults: TranslationOptions | None = None,
    prefix: str = "",
) -> FastAPI:
    """An application that answers for a model.

    Args:
        engine: what computes.
        name: what the model is called.
        limits: how much is taken on.
        token: what requests have to bring along.
        defaults: how texts are translated where a request says nothing.
        prefix: what is put before texts to translate where a request says nothing.
    """
    limits, measurements = limits or Limits(), Measurements()
    scheduler = Scheduler(engine, limits, measurements)

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        yield
        scheduler.close(limits.stop_timeout)

    # The pages /docs and /redoc would load scripts from elsewhere; /openapi.json has the same.
    application = FastAPI(title=f"paperformer: {name}", lifespan=lifespan, docs_url=None, redoc_url=None)
    application.state.scheduler = scheduler
    application.include_router(model_routes(name))
    if isinstance(engine, TranslationEngine):
        application.include_router(translation_routes(scheduler, engine, defaults or TranslationOptions(), prefix))
    elif isinstance(engine, TextEngine):
        application.include_router(completion_routes(scheduler, engine, name))
    elif isinstance(engine, MaskEngine):
        application.include_router(mask_routes(scheduler, engine))
    _add_state_routes(application, scheduler)
    _add_errors(application)
    guard = {"limits": limits, "measurements": measurements, "token": token, "routes": set(_paths(application))}
    application.add_middleware(Guards, **guard)  # type: ignore[arg-type]  # a class that is an application
    return application


def _add_state_routes(application: FastAPI, scheduler: Scheduler) -> None:
    @application.get("/health", response_model=None)
    async def health() -> Response:
        """Whether the server lives."""
        is_alive = scheduler.is_alive
        return JSONResponse({"status": "ok" if is_alive else "the model's thread has ended"}, 200 if is_alive else 503)

    @application.get("/ready", response_model=None)
    async def ready() -> Response:
        """Whether a request would be taken."""
        is_ready = scheduler.is_alive and scheduler.has_room
        return JSONResponse({"status": "ready" if is_ready else "busy"}, 200 if is_ready else 503)

    @application.get("/metrics", response_model=None)
    async def metrics() -> Response:
        """What was counted, for Prometheus."""
        return Response(scheduler.measurements.text(), media_type=CONTENT_TYPE_LATEST)


def _add_errors(application: FastAPI) -> None:
    def refuse(error: RequestError) -> JSONResponse:
        return JSONResponse(error.body(), error.status, headers=error.headers)

    @application.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> Response:
        return refuse(error)

    @application.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        message, field = explain(error.errors(), request.url.path)
        return refuse(RequestError(422, message, param=field))

    @application.exception_handler(404)
    async def unknown(request: Request, error: Exception) -> Response:
        known = ", ".join(_paths(application))
        return refuse(RequestError(404, f"there is no {request.url.path}; there are {known}"))

    @application.exception_handler(405)
    async def other_method(request: Request, error: Exception) -> Response:
        headers = getattr(error, "headers", None) or {}
        allowed = headers.get("Allow", "another method")
        return refuse(RequestError(405, f"{request.method} is not for {request.url.path}; use {allowed}"))

    @application.exception_handler(ClientGoneError)
    async def gone(request: Request, error: ClientGoneError) -> Response:
        return Response(status_code=499)  # which nobody reads

    @application.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return refuse(RequestError(500, "the server failed at this request; its log says how"))


def _paths(application: FastAPI) -> list[str]:
    return sorted(application.openapi()["paths"])
