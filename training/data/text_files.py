"""Running text from a text file, in pieces, so that a document of any size fits into memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from ..input_error import InputError
from .bad_lines import BadLines
from .chunks import chunks_of_pieces, chunks_of_rows
from .files import find_file
from .lines import read_lines

LINES_A_PIECE = 200
CHARACTERS_A_PIECE = 100_000


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A text file that is one document or has several.

    A document comes in rows of at most 200 lines, fewer if they are long: a row ends with the line that brings it to
    100,000 characters. Lines keep their ends, as line feeds, so that joining the rows of a document gives its text.
    """

    path: Path
    """The file. It may be compressed, also where the ending of the compression is not given here."""

    documents: Literal["joined", "each", "blank_line"] = "joined"
    """What a document is. joined: the whole file. each: a line, without its end; blank ones are left out. blank_line:
    what lies between blank lines, which are left out."""

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def files(self) -> list[Path]:
        """The file."""
        return [find_file(self.path)]

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The documents, without the lines that are left out."""
        if self.documents == "each":
            return chunks_of_rows((line,) for line in self._lines(bad) if not _is_blank(line))
        return chunks_of_pieces(self._pieces(bad))

    def _pieces(self, bad: BadLines) -> Iterator[tuple[str, bool]]:
        """Pieces of documents, and whether they begin one."""
        piece: list[str] = []
        characters = 0
        begins = True
        for line in self._lines(bad):
            ends_document = self.documents == "blank_line" and _is_blank(line)
            if not ends_document:
                piece.append(line)
                characters += len(line)
            if piece and (ends_document or len(piece) == LINES_A_PIECE or characters >= CHARACTERS_A_PIECE):
                yield "".join(piece), begins
                piece, characters, begins = [], 0, False
            if ends_document:
                begins = True
        if piece:
            yield "".join(piece), begins

    def _lines(self, bad: BadLines) -> Iterator[str]:
        path = find_file(self.path)
        is_empty = True
        for line in read_lines(path, bad, keep_ends=self.documents != "each"):
            is_empty = False
            if line:  # neither left out nor empty
                yield line
        if is_empty:
            raise InputError(f"{path} is empty; it must have text, a line at least")


def _is_blank(line: str) -> bool:
    return not line or line.isspace()
