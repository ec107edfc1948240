"""Progress for people: a live bar in a terminal, plain lines in a log file.

A bar redraws its line with carriage returns, which makes a log file one unreadable line. So where standard error is not
a terminal, the same figures are printed as a line twice a minute.
"""

import io
import os
import sys
from typing import Any

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_FRAMES = 0.5
SECONDS_UNTIL_SHOWN = 1.0


def is_first_process() -> bool:
    """Whether this process speaks for the run: the launcher numbers processes in the variable RANK."""
    return os.environ.get("RANK", "0") == "0"


def say(message: str) -> None:
    """Prints a line to standard error, above the bars in a terminal; only the first process does."""
    if is_first_process():
        tqdm.write(message, file=sys.stderr)


class ProgressBar(tqdm):  # type: ignore[type-arg]  # it is generic in its type hints only
    """tqdm that knows log files; work of less than a second shows nothing.

    Args:
        iterable: what to walk through, or None if `update` is called instead.
        options: as tqdm takes them.
    """

    def __init__(self, iterable: Any = None, **options: Any):
        self.in_terminal = sys.stderr.isatty()
        interval = SECONDS_BETWEEN_FRAMES if self.in_terminal else SECONDS_BETWEEN_LINES
        defaults: dict[str, Any] = {
            "leave": False,
            "dynamic_ncols": True,
            "delay": min(SECONDS_UNTIL_SHOWN, interval),
            "mininterval": interval,
            "maxinterval": max(10.0, interval),
            "disable": not is_first_process(),
            # What tqdm writes besides its meter, returns and blanks, is of no use in a log.
            "file": sys.stderr if self.in_terminal else io.StringIO(),
        }
        if not self.in_terminal:
            is_endless = options.get("total") is None and not hasattr(iterable, "__len__")
            how_far = "{n_fmt}" if is_endless else "{n_fmt}/{total_fmt} ({percentage:.0f}%), {remaining} left"
            defaults["bar_format"] = f"{{desc}}: {how_far}, {{rate_fmt}}{{postfix}}"
        super().__init__(iterable, **defaults | options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Shows the meter: drawn in a terminal, printed elsewhere."""
        if self.in_terminal:
            super().display(msg, pos)
        elif msg is None:
            print(self, file=sys.stderr, flush=True)
