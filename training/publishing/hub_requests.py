"""Requests to the Hub: made again where that can help, and one line that says why where it cannot.

huggingface_hub itself repeats what uploads and downloads files, five times; the other calls it makes once.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from huggingface_hub import constants, get_token
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from ..console.input_error import InputError
from ..console.progress import say

T = TypeVar("T")

TRANSIENT = (408, 429, 500, 502, 503, 504)
DELAYS = (1.0, 2.0, 4.0, 8.0)
"""Seconds to wait before each new attempt, where the server does not say how many."""
LONGEST_WAIT = 300.0

CLIENT_ERROR: type[Exception] = HfHubHTTPError.__mro__[1]
"""What the HTTP client raises where there is no answer: of httpx, or since huggingface_hub 2 of httpx2."""


def try_again(call: Callable[[], T], *, connects: bool = False) -> T:
    """Makes a request, and again for some time while the server is busy or out of order or the connection breaks.

    Args:
        call: makes it; made twice, it must do no harm.
        connects: whether it is the first one: where there is no connection at all, there is nothing to wait for.
    """
    for delay in DELAYS:
        try:
            return call()
        except (CLIENT_ERROR, json.JSONDecodeError) as error:  # an error page is no JSON
            if not is_transient(error) or (connects and type(error).__name__ == "ConnectError"):
                raise
            wait = _asked_to_wait(error) or delay
            if wait > LONGEST_WAIT:
                raise
            say(f"the Hub: {_reason(error)}; trying again in {wait:g} s")
            time.sleep(wait)
    return call()


def is_transient(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in TRANSIENT
    return isinstance(error, CLIENT_ERROR | json.JSONDecodeError)


def _asked_to_wait(error: Exception) -> float | None:
    """Seconds, by the header Retry-After."""
    value = error.response.headers.get("Retry-After", "") if isinstance(error, HfHubHTTPError) else ""
    return float(value) if value.isdigit() else None


@contextmanager
def hub_errors(repo_id: str, token: str | None = None, *, done: str = "nothing was published") -> Iterator[None]:
    """Makes an `InputError` of what goes wrong between here and the Hub; the token is in no message.

    Args:
        repo_id: what the requests are about.
        token: what they are made with, if not with that of the environment or the login.
        done: what has become of the repository.
    """
    with repetitions_said():
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            root = _root(error)
            if root is None:
                raise
            raise InputError(f"{hide_token(_explain(root, repo_id), token)}; {done}") from error


@contextmanager
def repetitions_said() -> Iterator[None]:
    """Says what the client asks for again in our words, instead of in its own, whose addresses may be signed."""
    logger = logging.getLogger("huggingface_hub.utils._http")
    is_outermost = _say_what_is_repeated not in logger.filters
    logger.addFilter(_say_what_is_repeated)  # once, however often it is called
    try:
        yield
    finally:
        if is_outermost:
            logger.removeFilter(_say_what_is_repeated)


def hide_token(text: str, token: str | None = None) -> str:
    """The text without the token, should somebody have repeated it."""
    for secret in (token, get_token()):
        if secret:
            text = text.replace(secret, "***")
    return text


def _say_what_is_repeated(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    if "before retry" in message or "Retrying in" in message:
        seconds = next((word for word in message.replace("s ", " ").split() if word[0].isdigit()), "some")
        say(f"the Hub: busy, or the connection broke; trying again in {float(seconds):g} s")
    return False


def _root(error: BaseException | None) -> BaseException | None:
    """The error that began it, if it is one of the Hub's, of the connection's or of the upload's."""
    known = (CLIENT_ERROR, OSError, HFValidationError, json.JSONDecodeError)
    first = error
    while error is not None:
        if isinstance(error, known) and not isinstance(error, LocalEntryNotFoundError):  # which hides the reason
            return error
        error = error.__cause__
    # What the client raises of itself: RuntimeError for Xet, ValueError for metadata or an answer that it refuses.
    return first if isinstance(first, RuntimeError | ValueError) else None


def explain_download(error: BaseException, repo_id: str) -> str | None:
    """What kept the client from fetching something, in a sentence; None if it was something else.

    transformers says little of it: that a file is missing, also where the connection broke.
    """
    seen = _clients_error(error)
    if seen is None or isinstance(seen, EntryNotFoundError):
        return None
    return hide_token(_explain(seen, repo_id))


def is_out_of_reach(error: BaseException) -> bool:
    """Whether something could not be fetched because the Hub did not answer, or was busy, at every attempt."""
    seen = _clients_error(error)
    return seen is not None and is_transient(seen)


def _clients_error(error: BaseException) -> BaseException | None:
    """What the HTTP client raised, of which another error came."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, CLIENT_ERROR):
        seen = seen.__cause__ or seen.__context__
    return seen


def _explain(error: BaseException, repo_id: str) -> str:
    """What went wrong and what to do, in a sentence."""
    if isinstance(error, HfHubHTTPError):
        return _explain_answer(error, repo_id)
    if isinstance(error, HFValidationError):
        return f"'{repo_id}' is no name of a repository; it must be USER/NAME, of letters, digits, '-', '_' and '.'"
    if isinstance(error, LocalTokenNotFoundError):
        return "there is no access token; log in with: hf auth login, or set HF_TOKEN"
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, so nothing is asked of the Hub; unset it"
    if isinstance(error, CLIENT_ERROR | ConnectionError | json.JSONDecodeError):
        return f"{constants.ENDPOINT} cannot be reached, or the connection broke ({_reason(error)}); try again later"
    return f"{repo_id}: {_reason(error)}"


def _explain_answer(error: HfHubHTTPError, repo_id: str) -> str:
    status = error.response.status_code
    said = f" ({error.server_message})" if error.server_message else ""
    if isinstance(error, RevisionNotFoundError):
        return f"{repo_id} has no such revision{said}; make the branch first, or leave --revision out"
    said = " ".join(said.splitlines())
    if status == 401 and not (isinstance(error, RepositoryNotFoundError) and get_token() is None):
        return f"the Hub does not accept the access token{said}; log in with: hf auth login, or set HF_TOKEN"
    if status == 403:
        return f"the access token may not do this to {repo_id}{said}; it needs write permission there"
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        return f"{repo_id} is not on the Hub, or the access token may not see it{said}"
    if status == 412:
        return f"{repo_id} was changed by someone while this was being uploaded{said}; push again to compare with that"
    if status in TRANSIENT:
        return f"the Hub is busy or out of order: {status}{said}; try again later"
    return f"the Hub refuses this for {repo_id}: {status}{said}"


def _reason(error: Any) -> str:
    """The first line of an error's message, or its name."""
    if isinstance(error, HfHubHTTPError):
        return str(error.response.status_code)
    if isinstance(error, json.JSONDecodeError):
        return "the answer is none of the Hub's"
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
