"""Where translated records go: standard output, or a file that an interrupted command goes on with.

A record may have line ends in it, so the records that are complete are not counted by them: how many there are, and up
to which byte, is written down behind each window, in the lines of `FILE.part.json` that follow the request.
"""

import json
import os
import sys
from typing import BinaryIO, Self

from ...training.atomic_files import writing
from ..line_output import OutputFile, standard_output


class RecordOutput:
    """Writes to standard output, and hands on at once."""

    done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def write_records(self, content: bytes, count: int) -> None:
        """Writes some records.

        Raises:
            InputError: if the disk is full, or cannot be written for another reason.
        """
        with standard_output():
            sys.stdout.buffer.write(content)


class RecordFile(OutputFile):
    """A file of records that is complete or not there; see `OutputFile`."""

    unit = "records"

    def write_records(self, content: bytes, count: int) -> None:
        """Writes some records, so that no end of this process loses them.

        Raises:
            InputError: if the disk is full, or cannot be written for another reason.
        """
        self._append(content, count)
        with writing(self.begun), self.begun.open("a", encoding="utf-8") as journal:
            journal.write(f"\n{json.dumps([self.done, self._file.tell()])}\n")
            journal.flush()
            os.fsync(journal.fileno())

    def _find_complete(self, file: BinaryIO) -> tuple[int, int]:
        size = file.seek(0, os.SEEK_END)
        done, complete = 0, 0
        for line in self.begun.read_text("utf-8").split("\n")[1:]:
            try:
                count, end = json.loads(line)
            except ValueError:  # an empty line, or one that a kill or a full disk has cut off
                continue
            if end <= size:
                done, complete = count, end
        return done, complete
