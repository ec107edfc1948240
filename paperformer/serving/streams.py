"""Answers in parts, as server-sent events (HTML Living Standard, section 9.2)."""

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse

from .errors import RequestError
from .exchange import ClientGoneError

END = "data: [DONE]\n\n"
"""How OpenAI's streams end."""


def event(data: Any) -> str:
    """One event."""
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def respond(parts: AsyncIterator[Any]) -> StreamingResponse:
    """Sends parts as events, and `END` behind them. A failure is an event of its own, and no `END` comes then."""

    async def events() -> AsyncIterator[str]:
        try:
            async for part in parts:
                yield event(part)
            yield END
        except RequestError as error:
            yield event(error.body())
        except ClientGoneError:
            pass

    return StreamingResponse(
        events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    )
