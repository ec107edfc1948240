"""Lines that somebody enters in a terminal, each translated at once."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..training.console.progress import say
from .cutting import Notes
from .line_source import UNWANTED, Line
from .streaming import Written

PROMPT = "> "


def converse(
    prepare: Callable[[Iterator[Line]], Iterator[Line]],
    translate: Callable[[Sequence[str], Notes], Sequence[Any]],
    written: Written,
) -> None:
    """Asks for a line, prints its translation, and so on; the end of the input (Ctrl-D) ends it.

    Lines can be edited, and those before are there again (arrow keys), where Python has readline.

    Args:
        prepare: what is done with lines before they are translated.
        translate, written: as `translate_stream` takes them.
    """
    with contextlib.suppress(ImportError):  # Windows has none
        import readline  # noqa: F401 - `input` edits with it
    say("Enter a line to translate; Ctrl-D ends.")
    for line in prepare(_entered()):
        (output,) = translate([line.text], lambda _, what: say(what))
        print(written(line.number, output), flush=True)


def _entered() -> Iterator[Line]:
    number = 0
    while True:
        try:
            text = input(PROMPT)
        except UnicodeDecodeError as error:
            say(f"that is not UTF-8 (byte 0x{error.object[error.start]:02x}), and was not translated")
            continue
        except EOFError:
            print()  # the prompt's line ends
            return
        if text.strip():
            number += 1
            yield Line(number, UNWANTED.sub(" ", text))
