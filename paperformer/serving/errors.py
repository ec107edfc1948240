"""Why a request is refused: a status, and one line that says what would be right."""

from typing import Any

TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "unavailable_error",
    504: "timeout_error",
}


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
        status: of HTTP.
        message: what is wrong, and what would be right.
        param: the field of the request that is to blame.
        retry_after: after how many seconds it may be tried again.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.message, self.param, self.retry_after = status, message, param, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Headers that belong to the answer."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return headers | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})

    def body(self) -> dict[str, Any]:
        """The answer as JSON, in the form that OpenAI's clients read."""
        kind = TYPES.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}
