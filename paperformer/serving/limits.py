"""How much a server takes on, at once and of one client."""

from dataclasses import dataclass, fields

from ..training.console.input_error import InputError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is more than one of these is refused, with the status that is named.

    Raises:
        InputError: for a limit that lets nothing through.
    """

    tokens_per_batch: int = 4096
    """Tokens of a batch, padding and beams included; one sequence that has more is a batch by itself."""

    batch_wait: float = 0.005
    """Seconds that a request waits at most for others to share its batch while the model has nothing else to do."""

    max_waiting: int = 256
    """Requests that may wait for the model: 429."""

    max_request_tokens: int = 65536
    """Tokens of one request, of all its texts: 413."""

    max_body_bytes: int = 1_000_000
    """Bytes of one request: 413."""

    timeout: float = 60.0
    """Seconds after which a request is given up: 504."""

    stop_timeout: float = 30.0
    """Seconds that requests which have been taken get when the server is stopped."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("batch_wait", "stop_timeout") else 1 if isinstance(field.default, int) else None
            if least is None and not value > 0:
                raise InputError(f"{field.name} is {value}; it must be greater than 0")
            if least is not None and not value >= least:
                raise InputError(f"{field.name} is {value}; it must be at least {least}")
