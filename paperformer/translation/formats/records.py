"""What a file of any format is to the rest: records one behind the other, each with its texts and its bytes."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ...training.data.text.placeholders import Difference
from ..checking import Translate
from ..line_source import ReadAhead
from ..streaming import Notes, work_in_windows


class Written(NamedTuple):
    """A record as it is written."""

    content: bytes

    differences: Sequence[Difference] = ()
    """Why somebody should look at it."""


@dataclass(frozen=True)
class Record:
    """A row, an object or a unit of a file; or a part of the file that has nothing to translate."""

    number: int
    """Of the line that it begins on."""

    size: int
    """Bytes that it takes in memory, about."""

    write: Callable[[Sequence[str]], Written]
    """Makes what is written of the translations of its texts."""

    texts: Sequence[str] = ()
    """What is to be translated: lines without white space at their ends."""

    faults: Sequence[str] = ()
    """What is odd about it."""

    left: str = ""
    """Why nothing of it is translated, if it is one that people would count."""


def kept(content: bytes, number: int, *, left: str = "", faults: Sequence[str] = ()) -> Record:
    """A record that stays as it is."""
    return Record(number, len(content), lambda _: Written(content), faults=faults, left=left)


@dataclass
class Outcome:
    """What came of the records of a file."""

    translated: int = 0

    flagged: Counter[str] = field(default_factory=Counter)
    """Why somebody should look at some of the translated ones, and how many."""

    left: Counter[str] = field(default_factory=Counter)
    """Why others are left as they were, and how many."""

    def describe(self, records: str) -> str:
        """A line that says it. `records` is what they are called."""
        return "".join(
            [
                f"{self.translated:,} {records} translated",
                f"; to be looked at: {_list(self.flagged)}" if self.flagged else "",
                f"; left as they were: {_list(self.left)}" if self.left else "",
            ]
        )


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.items()))


def translate_records(
    translate: Translate, records: ReadAhead[Record], note: Notes, outcome: Outcome
) -> Iterator[tuple[bytes, int]]:
    """What is written of the records, in their order, window by window, with the number of records.

    Args:
        translate: texts to translations.
        records: where they come from.
        note: told of what is odd, by the number of the record's line.
        outcome: added to.
    """

    def work(window: list[Record]) -> tuple[bytes, int]:
        owners = [record for record in window for _ in record.texts]
        texts = [text for record in window for text in record.texts]
        translations = iter(translate(texts, lambda place, what: note(owners[place].number, what)))
        content = []
        for record in window:
            for fault in record.faults:
                note(record.number, fault)
            written = record.write(list(islice(translations, len(record.texts))))
            content.append(written.content)
            outcome.translated += bool(record.texts)
            outcome.left.update([record.left] if record.left else [])
            outcome.flagged.update({difference.reason for difference in written.differences})
            for difference in written.differences:
                note(record.number, f"{difference.reason} ({difference.detail})")
        return b"".join(content), len(window)

    return work_in_windows(records, work)
