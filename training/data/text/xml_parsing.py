"""XML by expat, block by block, in bounded memory, with one line for what is wrong with it.

Entities are refused: declared inside a file, they can expand to any size ("billion laughs") or fetch other files.
Nothing is ever fetched; a DOCTYPE that names a document type is fine.
"""

from xml.parsers import expat

from ...console.input_error import InputError

LONGEST_MARKUP = 1 << 23
"""Bytes. Expat holds a tag, comment or declaration in memory until it ends."""


class XmlParser:
    """A document that comes in blocks of bytes; whoever wants its elements sets the handlers of `expat`.

    Args:
        name: of the file, for messages.
        encoding: of the blocks, if it is not the one that the document declares.
        namespaces: whether the names of elements and attributes come as `NAMESPACE NAME`.
    """

    def __init__(self, name: str, *, encoding: str | None = None, namespaces: bool = False):
        self._name = name
        self._fed = 0  # bytes
        self.expat = expat.ParserCreate(encoding, " " if namespaces else None)
        self.expat.buffer_text = True
        self.expat.buffer_size = 1 << 16
        self.expat.EntityDeclHandler = self._refuse_entity
        self.expat.SkippedEntityHandler = self._refuse_skipped_entity

    @property
    def line(self) -> int:
        """The number of the line that the parser is at, from 1."""
        return self.expat.CurrentLineNumber

    @property
    def place(self) -> str:
        """The file, and the line that the parser is at."""
        return f"{self._name}, line {self.line}"

    def feed(self, block: bytes) -> None:
        """Parses a block.

        Raises:
            InputError: if the document is not well-formed, declares entities, or has endless markup.
        """
        self._fed += len(block)
        self._parse(block)
        if self._fed - self.expat.CurrentByteIndex > LONGEST_MARKUP:
            raise InputError(
                f"{self.place}: a tag, comment or declaration of more than {LONGEST_MARKUP:,} bytes; is the file "
                "damaged?"
            )

    def close(self) -> None:
        """Parses what is left at the end.

        Raises:
            InputError: if the document is not complete.
        """
        self._parse(b"", is_final=True)

    def _parse(self, block: bytes, *, is_final: bool = False) -> None:
        try:
            self.expat.Parse(block, is_final)
        except expat.ExpatError as error:
            raise InputError(
                f"{self._name}, line {error.lineno}, column {error.offset + 1}: {expat.ErrorString(error.code)}; "
                "the file must be well-formed XML"
            ) from error
        except InputError:
            raise
        except (ValueError, LookupError) as error:  # of Python's codecs, for what expat does not know itself
            raise InputError(
                f"{self._name} is in an encoding that cannot be read ({error}); convert it to UTF-8"
            ) from error

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise InputError(
            f"{self.place}: the file declares the entity '{name}'; entities can expand to any size and fetch other "
            "files, so they are refused: write the text out where it is used"
        )

    def _refuse_skipped_entity(self, name: str, is_parameter_entity: bool) -> None:
        reference = f"{'%' if is_parameter_entity else '&'}{name};"
        raise InputError(
            f"{self.place}: the entity '{name}' ({reference}) is defined outside the file, and nothing outside is "
            "read: write the text out"
        )
