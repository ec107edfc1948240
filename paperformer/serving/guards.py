"""What a request passes before it is read: the token, its size; and what counts it when it has been answered."""

import hmac
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .errors import RequestError
from .limits import Limits
from .measurements import Measurements

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN_ROUTES = {"/health", "/ready", "/metrics"}
"""Routes that need no token: they say nothing of what anybody has asked."""


class Guards:
    """Refuses what is too large or has not the token, and measures all requests.

    Args:
        application: what is guarded.
        limits: how many bytes a request may have.
        measurements: where requests are counted.
        token: what they have to bring along, if anything.
        routes: the paths that there are; others are counted together.
    """

    def __init__(
        self,
        application: Application,
        limits: Limits,
        measurements: Measurements,
        token: str | None,
        routes: set[str],
    ):
        self.application, self.limits, self.measurements = application, limits, measurements
        self.token, self.routes = token, routes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        route = scope["path"] if scope["path"] in self.routes else "other"
        start, status = time.monotonic(), 499  # nginx' number for a client that has left before the answer

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            headers = dict(scope["headers"])
            self._check_token(route, headers)
            body = await self._read_body(headers, receive)
            await self.application(scope, _replay(body, receive), noting)
        except RequestError as error:
            await _refuse(error, noting)
        finally:
            self.measurements.requests.labels(route, str(status)).inc()
            self.measurements.request_seconds.labels(route).observe(time.monotonic() - start)

    def _check_token(self, route: str, headers: dict[bytes, bytes]) -> None:
        if self.token is None or route in OPEN_ROUTES:
            return
        given = headers.get(b"authorization", b"")
        if not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
            raise RequestError(401, "this server needs a token; send the header 'Authorization: Bearer TOKEN'")

    async def _read_body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most = self.limits.max_body_bytes
        said = headers.get(b"content-length", b"")
        body = bytearray()
        is_more = not (said.isdigit() and int(said) > most)
        while is_more:
            message = await receive()
            body += message.get("body", b"")
            is_more = message.get("more_body", False) and len(body) <= most
        if len(body) > most or (said.isdigit() and int(said) > most):
            raise RequestError(413, f"the request has more than {most:,} bytes; send several")
        return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives a body that has been read, and then what comes."""
    is_given = False

    async def give() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


async def _refuse(error: RequestError, send: Send) -> None:
    body = json.dumps(error.body()).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
