"""What happens to a line that cannot be used: the run stops at it, or leaves it out and counts it."""

from collections import Counter

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
        self.counts[reason] += 1
        self.places.setdefault(reason, [])
        if len(self.places[reason]) < EXAMPLES_A_REASON:
            self.places[reason].append(place)
