"""The error for what a user gave: shown as one line, without a traceback, and exit code 2."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Makes an `InputError` of a failure to write `path`, be it a missing right or a full disk."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {error.filename or path}: {error.strerror or error}") from error
    except Exception as error:
        # The writers of torch and safetensors are not Python, and tell of a full disk by the words alone.
        reason = str(error)
        if "(os error" not in reason and "inline_container" not in reason:
            raise
        raise InputError(f"cannot write {path}, perhaps because the disk is full: {reason.splitlines()[0]}") from error
