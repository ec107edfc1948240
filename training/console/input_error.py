"""The error for what a user gave: shown as one line, without a traceback, and exit code 2."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """Something the user gave cannot be used: the message says what, where, and what would be right."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Ends the program with exit code 2 and one line on standard error when an `InputError` reaches it."""
    try:
        yield
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
