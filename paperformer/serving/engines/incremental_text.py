"""Text from tokens that come one by one: no broken characters, nothing of what a stop text begins."""

from collections.abc import Callable, Sequence

CONTEXT = 8
"""Tokens before the first one with which it is decoded: some tokenizers write its blank only behind others."""

BROKEN = "\ufffd"

Decode = Callable[[Sequence[int]], str]


class IncrementalText:
    """The text of tokens, as far as it is certain.

    Args:
        decode: tokens to text.
        prompt: tokens that come before.
        stops: texts at the first of which the text ends, without it.
    """

    def __init__(self, decode: Decode, prompt: Sequence[int], stops: Sequence[str] = ()):
        self._decode, self._stops = decode, stops
        self._ids = list(prompt[-CONTEXT:])
        self._known = len(self._ids)
        """Tokens whose characters are complete, and in `text`."""
        self._before = 0
        """Where the tokens begin that the next ones are decoded with."""
        self.text = ""
        self.shown = 0
        """Characters that `take` has given out."""
        self.is_stopped = False

    def add(self, ids: Sequence[int]) -> None:
        """More tokens."""
        self._ids += ids
        grown = self._new_text()
        if not grown.endswith(BROKEN):
            self._know(grown)

    def take(self) -> str:
        """Text that is certain, and was not given out yet."""
        held = 0
        if not self.is_stopped:
            held = max((_overlap(self.text[self.shown :], stop) for stop in self._stops), default=0)
        end = max(self.shown, len(self.text) - held)
        new, self.shown = self.text[self.shown : end], end
        return new

    def end(self) -> None:
        """No more tokens come: what is there is all."""
        if not self.is_stopped and self._known < len(self._ids):
            self._know(self._new_text())
        self._stops = ()

    def _new_text(self) -> str:
        known = self._decode(self._ids[self._before : self._known])
        return self._decode(self._ids[self._before :])[len(known) :]

    def _know(self, grown: str) -> None:
        searched = max(0, len(self.text) - max(map(len, self._stops), default=0))
        self.text += grown
        self._before, self._known = self._known, len(self._ids)
        places = [place for stop in self._stops if (place := self.text.find(stop, searched)) >= 0]
        if places:
            self.text, self.is_stopped = self.text[: min(places)], True


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text may be the beginning of another."""
    return next((count for count in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:count])), 0)
