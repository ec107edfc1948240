"""What happens to a line that cannot be used: the run stops at it, or leaves it out and counts it."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ...console.input_error import InputError

EXAMPLES_A_REASON = 3


class BadLines:
    """The recipe's `on_bad_line`, and what it has done so far.

    Args:
        skip: whether bad lines are left out and counted instead of stopping the run.
    """

    def __init__(self, *, skip: bool = False):
        self.skip = skip
        self.counts: Counter[str] = Counter()
        """Reason -> how many lines were left out for it."""
        self.places: dict[str, list[str]] = {}
        """Reason -> where the first of them are."""

    def report(self, place: str, reason: str, detail: str) -> None:
        """Takes note of a bad line.

        Args:
            place: where it is, for example `train.tsv, line 7`.
            reason: what kind of fault it has, in a word or two that do not differ from line to line.
            detail: what exactly is wrong, and what would be right.

        Raises:
            InputError: if bad lines are not to be skipped.
        """
        if not self.skip:
            raise InputError(f"{place}: {detail}")
        self.add({reason: 1}, {reason: [place]})

    def add(self, counts: Mapping[str, int], places: Mapping[str, Sequence[str]]) -> None:
        """Takes over what was left out of lines that come after those of which this knows."""
        self.counts.update(counts)
        for reason, found in places.items():
            known = self.places.setdefault(reason, [])
            known += found[: EXAMPLES_A_REASON - len(known)]
