"""Running text from a text file, in pieces, so that a document of any size fits into memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyarrow as pa

from ..text.bad_lines import BadLines
from ..text.chunks import chunks_of_pieces
from ..text.files import find_file
from ..text.line_ranges import line_ranges, ranges_of_paragraphs
from ..text.lines import decode_lines, read_lines
from .reader import Documents, FileFormat, FileReader

LINES_A_PIECE = 200
CHARACTERS_A_PIECE = 100_000


@dataclass(frozen=True, kw_only=True)
class TextFile(FileReader):
    """A text file that is one document or has several.

    A document comes in rows of at most 200 lines, fewer if they are long: a row ends with the line that brings it to
    100,000 characters. Lines keep their ends, as line feeds, so that joining the rows of a document gives its text.
    """

    documents: Documents = "joined"
    """What a document is. joined: the whole file. each: a line, without its end; blank ones are left out. blank_line:
    what lies between blank lines, which are left out."""

    def chunks(self, bad: BadLines) -> Iterator[pa.RecordBatch]:
        """The documents, without the lines that are left out."""
        if self.documents == "each":
            return super().chunks(bad)
        return chunks_of_pieces(self._pieces(bad))

    def rows(self, bad: BadLines) -> Iterator[tuple[str]]:
        """The lines that are not blank, each a document."""
        return ((line,) for line in self._lines(bad) if not _is_blank(line))

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
        lines = self.require_any(self._read_lines(bad), "text, a line at least")
        return filter(None, lines)  # neither left out nor empty

    def _read_lines(self, bad: BadLines) -> Iterator[str | None]:
        """The lines of the file; None for one that is left out."""
        return read_lines(find_file(self.path), bad, keep_ends=self.documents != "each", part=self.part)

    def divide(self, lines: int) -> Sequence[Self]:
        """Parts of whole documents."""
        if self.documents == "joined" or not self.files():
            return [self]
        cut = line_ranges if self.documents == "each" else ranges_of_paragraphs
        return self.parts(cut(find_file(self.path), lines))


@dataclass(frozen=True, kw_only=True)
class GivenText(TextFile):
    """A text that is no file, read as if it were one; its path is what errors call it."""

    text: str = field(repr=False)

    def files(self) -> list[Path]:
        return []

    def _read_lines(self, bad: BadLines) -> Iterator[str | None]:
        content = self.text.encode("utf-8", "surrogatepass")  # a lone surrogate is then a line that is not UTF-8
        return decode_lines([content] if content else [], self.name, bad, keep_ends=self.documents != "each")


TEXT = FileFormat(
    name="text",
    endings=(".txt",),
    reader=lambda path, request: TextFile(path=path, documents=request.documents or "joined"),
    has_pairs=False,
    divides_documents=True,
)


def _is_blank(line: str) -> bool:
    return not line or line.isspace()
