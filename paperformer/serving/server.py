"""A server that runs until it is told to stop, and then finishes what it took."""

import json
import os
import signal
import socket
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from ..training.console.input_error import InputError
from ..training.console.progress import say

TOKEN_VARIABLE = "PAPERFORMER_SERVE_TOKEN"

EXAMPLES = {
    "translation": ("/translate", {"text": "Hello."}),
    "text-generation": ("/v1/completions", {"prompt": "Hello", "max_tokens": 20}),
    "fill-mask": ("/fill-mask", {"text": "Hello <mask>."}),
}


class Server(uvicorn.Server):
    """uvicorn that says where it is when it can be reached there."""

    def __init__(self, config: uvicorn.Config, greeting: str):
        super().__init__(config)
        self.greeting = greeting

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's."""
        await super().startup(sockets)
        if self.started:
            say(self.greeting)


def serve(
    application: FastAPI, listener: socket.socket, greeting: str, stop_timeout: float, log_level: str = "warning"
) -> None:
    """Answers until SIGTERM or Ctrl-C; then takes nothing more, and ends when all that was taken is answered.

    Args:
        application: what answers.
        listener: where requests come in.
        greeting: said when they can come.
        stop_timeout: seconds after which what is not finished then is given up.
        log_level: what uvicorn tells of.

    Raises:
        KeyboardInterrupt: at the end, if it was Ctrl-C.
    """
    config = uvicorn.Config(
        application,
        log_level=log_level,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(stop_timeout)),
    )
    # uvicorn raises the signal that has stopped it once more, when it is done.
    earlier = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        Server(config, greeting).run([listener])
    finally:
        signal.signal(signal.SIGTERM, earlier)


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address.

    Raises:
        InputError: if that is not ours, or taken.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"port is {port}; it must be from 0, any that is free, to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        hint = "; give another --port, or 0 for any that is free" if port else "; give another --host"
        # The message of `create_server` repeats the address; numbers below 0 are of names that cannot be resolved.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror
        raise InputError(f"{host}:{port} cannot be listened at: {reason}{hint}") from error


def read_token(file: str | None) -> str | None:
    """What requests have to bring along: from a file, or else from the environment; None: nothing.

    Raises:
        InputError: if the file cannot be read, or what should be a token is none.
    """
    if file is not None:
        place = file
        try:
            token = Path(file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from error
    elif TOKEN_VARIABLE in os.environ:
        place, token = TOKEN_VARIABLE, os.environ[TOKEN_VARIABLE].strip()
    else:
        return None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(f"{place} holds no token: it must be ASCII characters without blanks, at least one")
    return token


def greet(name: str, task: str, listener: socket.socket, *, mask: str, has_token: bool) -> str:
    """Where the server is, what it has, and a command that asks it.

    Args:
        name: of the model.
        task: what it is for.
        listener: where it listens.
        mask: how a mask is written.
        has_token: whether requests need one.
    """
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    address = f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
    route, body = EXAMPLES[task]
    data = json.dumps(body).replace("<mask>", mask).replace("'", "'\\''")
    # Of the header curl reads the token from the environment, so that it is in no list of processes.
    token = f""" -H @- <<< "Authorization: Bearer ${TOKEN_VARIABLE}\"""" if has_token else ""
    lines = [
        f"serving {name} ({task}) at {address}; Ctrl-C stops it",
        f"try: curl {address}{route} -H 'Content-Type: application/json' -d '{data}'{token}",
    ]
    if (not has_token and reachable != host) or not (host.startswith("127.") or host == "::1" or has_token):
        lines.append(f"anybody who reaches {host} can use it; {TOKEN_VARIABLE} or --token_file ask for a token")
    return "\n".join(lines)
