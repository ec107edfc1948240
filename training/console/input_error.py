"""How a program ends other than well: one line for what a user gave, one for Ctrl-C, none for a closed pipe."""

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .colours import is_coloured, paint


class InputError(ValueError):
    """Something the user gave cannot be used: the message, one line, says what, where, and what would be right."""

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Ends the program without a traceback when one of these reaches it.

    An `InputError`, or a full disk behind standard output: exit code 2 and one line on standard error. Ctrl-C: 130, as
    shells have it, and one line. A reader of standard output that has had enough, such as `head`: 141, the same for
    SIGPIPE, in silence.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # as it is where standard output was closed
                sys.stdout.flush()  # or a closed pipe would show only when Python ends, too late to be caught
    except InputError as error:
        _say("error:", str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        if not _is_stdout_closed():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still has to write
        sys.exit(141)
    except OSError as error:
        # Files say themselves where they cannot be written; what is left is standard output on a full disk.
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _say("error:", f"standard output cannot be written: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)


def _say(how: str, why: str = "") -> None:
    """How a program ends, in red where there are colours, and why."""
    word = paint(how, "1;31") if is_coloured(sys.stderr) else how
    print(" ".join(filter(None, (word, why))), file=sys.stderr)


def _is_stdout_closed() -> bool:
    """Whether it is standard output that nobody reads any more."""
    watched = select.poll()
    try:
        watched.register(sys.stdout, 0)
    except (OSError, ValueError):  # it is no file of the operating system's
        return False
    return any(events & select.POLLERR for _, events in watched.poll(0))
