"""What every source of text looks like to the rest of the package."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from .bad_lines import BadLines


class Reader(Protocol):
    """One source of text: a file, a pair of files, a folder, or a data set of the Hub.

    Making a reader touches no file. Reading it again gives the same chunks again.
    """

    @property
    def name(self) -> str:
        """What to call it in messages and reports."""

    def files(self) -> list[Path]:
        """The local files that are read, for noticing changes; none of a data set of the Hub.

        Raises:
            InputError: if one is missing.
        """

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The text, in chunks (see `chunks`).

        Args:
            bad: what to do with lines that cannot be used.

        Raises:
            InputError: if it cannot be read, or has a bad line that is not to be left out.
        """
