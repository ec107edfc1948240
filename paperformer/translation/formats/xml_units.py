"""XML documents as units that are changed here and there, and all else of them to the byte.

Expat says where each element begins; what is written is what was read, with other bytes spliced in. So name spaces,
comments, the order of attributes, line ends and what no specification knows stay as they are, and no more than a unit
is in memory.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple, Protocol
from xml.sax.saxutils import escape, quoteattr

from ...training.console.input_error import InputError
from ...training.data.text.decoding import text_decoder
from ...training.data.text.placeholders import Difference
from ...training.data.text.xml_parsing import XmlParser
from .marked_text import Code, Token
from .records import Record, Written, kept

BLOCK_BYTES = 1 << 16
LONGEST_UNIT = 1 << 26
"""Bytes: 64 MB."""
LONGEST_GAP = 1 << 20
"""Bytes between units that are written as one record with the next."""

Kind = Literal["span", "segment", "open", "close", "alone"]

_XML = "http://www.w3.org/XML/1998/namespace "
_TAG = re.compile(rb"""<[^<>"']*(?:"[^"]*"[^<>"']*|'[^']*'[^<>"']*)*>""")
_ATTRIBUTE = re.compile(r"""\s+([^\s=<>"']+)\s*=\s*(?:"[^"]*"|'[^']*')""")
_DECLARED = re.compile(rb"""^(?:\xef\xbb\xbf)?<\?xml[^>]*?\bencoding\s*=\s*["']([\w.:-]+)["']""")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (b"<\0?\0", "utf-16-le"),
    (b"\0<\0?", "utf-16-be"),
)


@dataclass
class Element:
    """An element, and where it is in its unit: `start`, its content from `content` to `stop`, `end`; in bytes."""

    namespace: str
    name: str
    attributes: dict[str, str]
    """Those of name spaces as `NAMESPACE NAME`."""
    line: int
    start: int
    content: int
    stop: int = 0
    end: int = 0
    children: list["Element | str"] = field(default_factory=list)

    def child(self, name: str) -> "Element | None":
        """The first child of that name, in the element's own name space."""
        return next(iter(self.elements(name)), None)

    def elements(self, name: str) -> "list[Element]":
        """The children of that name, in the element's own name space."""
        found = (child for child in self.children if isinstance(child, Element))
        return [child for child in found if (child.namespace, child.name) == (self.namespace, name)]

    def xml(self, name: str) -> str | None:
        """The attribute `xml:NAME`."""
        return self.attributes.get(_XML + name)

    def is_empty(self) -> bool:
        """Whether there is nothing in it but white space."""
        return all(isinstance(child, str) and not child.strip() for child in self.children)


class Splice(NamedTuple):
    """Bytes that take the place of those from `start` to `end`."""

    start: int
    end: int
    content: str


@dataclass
class Unit:
    """An element that is translated as a whole."""

    element: Element
    ancestors: list[Element]
    raw: bytes

    def slice(self, start: int, end: int) -> str:
        """The text from one byte to another."""
        return self.raw[start:end].decode()

    def tag(self, element: Element) -> str:
        """The start tag of an element."""
        return self.slice(element.start, element.content)

    def space_before(self, element: Element) -> str:
        """The white space in front of an element: what to put before a new one beside it."""
        before = self.raw[: element.start]
        return before[len(before.rstrip()) :].decode()

    def inherited(self, name: str, *, of: Element | None = None) -> str | None:
        """An attribute of an element, or else of the nearest that it is in."""
        chain = [*self.ancestors, self.element, *([] if of is None else [of])]
        return next((value for element in reversed(chain) if (value := element.attributes.get(name))), None)

    def keeps_space(self, element: Element) -> bool:
        """Whether white space in an element of the unit means something (`xml:space`)."""
        return self.inherited(_XML + "space", of=element) == "preserve"


@dataclass(frozen=True)
class Change:
    """What is to be done with a unit."""

    texts: Sequence[str] = ()
    """What is to be translated."""

    apply: Callable[[Sequence[str]], tuple[list[Splice], list[Difference]]] = lambda _: ([], [])
    """Makes of the translations what is spliced in, and why somebody should look at it."""

    faults: Sequence[str] = ()
    left: str = ""
    """As of a `Record`."""


class XmlFormat(Protocol):
    """What a format says of its documents."""

    def enter(self, element: Element, ancestors: Sequence[Element]) -> bool | str:
        """Told of each element outside units: True if it is a unit; or what is to be written into its start tag."""

    def change(self, unit: Unit) -> Change:
        """Told of each unit."""


def read_units(read: Callable[[int], bytes], name: str, document: XmlFormat) -> Iterator[Record]:
    """The units of an XML document, each with what stands before it.

    Args:
        read: gives its bytes.
        name: of the file, for messages.
        document: what its units are, and what is changed in them.

    Raises:
        InputError: if it is not well-formed, declares entities, or has a unit of more than `LONGEST_UNIT` bytes.
    """
    blocks = _full_blocks(read)
    first = next(blocks, b"")
    encoding = _find_encoding(first, name)
    divider = _Divider(name, document)
    for block in _decoded(chain([first], blocks), encoding, name):
        yield from (_record(gap, unit, document, encoding) for gap, unit in divider.feed(block))
    for gap, unit in divider.close():
        yield _record(gap, unit, document, encoding)


def splice(raw: bytes, splices: Iterable[Splice]) -> bytes:
    """Some bytes with others spliced in."""
    parts, place = [], 0
    for start, end, content in sorted(splices, key=lambda splice: splice.start):
        parts += [raw[place:start], content.encode()]
        place = end
    return b"".join([*parts, raw[place:]])


def read_tokens(unit: Unit, element: Element, kind_of: Callable[[Element], Kind]) -> list[Token]:
    """The content of an element as text and inline codes.

    Args:
        kind_of: what an element in it is: `span` if it has text inside; else all of it is one code.
    """
    tokens: list[Token] = []
    for child in element.children:
        if isinstance(child, str):
            tokens.append(child)
            continue
        kind = kind_of(child)
        if kind in ("span", "segment") and child.children:
            is_boundary = kind == "segment"
            tokens.append(Code(unit.tag(child), "open", is_boundary))
            tokens += read_tokens(unit, child, kind_of)
            tokens.append(Code(unit.slice(child.stop, child.end), "close", is_boundary))
        else:
            code_kind = kind if kind in ("open", "close") else "alone"
            tokens.append(Code(unit.slice(child.start, child.end), code_kind))
    return tokens


def write_tokens(tokens: Sequence[Token]) -> str:
    """Text and inline codes as the content of an element."""
    return "".join(escape(token) if isinstance(token, str) else token.raw for token in tokens)


def with_attributes(tag: str, attributes: dict[str, str]) -> str:
    """A start tag with these attributes, which take the place of those that it has."""
    tag = _ATTRIBUTE.sub(lambda found: "" if found[1] in attributes else found[0], tag)
    written = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
    end = re.search(r"\s*/?>\Z", tag)
    assert end is not None
    return tag[: end.start()] + written + end[0]


class _Divider:
    """Divides a document of UTF-8 into units and what is between them."""

    def __init__(self, name: str, document: XmlFormat):
        self._name = name
        self._document = document
        self._parser = XmlParser(name, encoding="utf-8", namespaces=True)
        self._expat = self._parser.expat
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._buffer = b""
        self._base = 0  # its place in the document
        self._taken = 0  # up to where it has been handed on
        self._ancestors: list[Element] = []
        self._open: list[Element] = []  # the unit, and what is open in it
        self._insertions: list[Splice] = []  # in the gap
        self._found: list[tuple[bytes, Unit | None]] = []

    def feed(self, block: bytes) -> list[tuple[bytes, Unit | None]]:
        """The units that end in this block, each with what is before it."""
        self._buffer += block
        self._parser.feed(block)
        if self._open and self._base + len(self._buffer) - self._open[0].start > LONGEST_UNIT:
            raise InputError(
                f"{self._name}, line {self._open[0].line}: a unit of more than {LONGEST_UNIT:,} bytes; split it"
            )
        if not self._open and self._expat.CurrentByteIndex - self._taken > LONGEST_GAP:
            self._found.append((self._take(self._expat.CurrentByteIndex), None))
        self._buffer, self._base = self._buffer[self._taken - self._base :], self._taken
        found, self._found = self._found, []
        return found

    def close(self) -> list[tuple[bytes, Unit | None]]:
        """What is left."""
        self._parser.close()
        return [*self._found, (self._take(self._base + len(self._buffer)), None)]

    def _take(self, end: int) -> bytes:
        """What comes next up to a place, with what is inserted there."""
        raw = self._buffer[self._taken - self._base : end - self._base]
        shifted = [Splice(at - self._taken, at - self._taken, content) for at, _, content in self._insertions]
        self._taken, self._insertions = end, []
        return splice(raw, shifted)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        namespace, _, name = tag.rpartition(" ")
        start = self._expat.CurrentByteIndex
        found = _TAG.match(self._buffer, start - self._base)
        assert found is not None  # or expat would not have found one
        content = self._base + found.end()
        element = Element(namespace, name, attributes, self._parser.line, start, content)
        if self._open:
            self._open[-1].children.append(element)
            self._open.append(element)
            return
        action = self._document.enter(element, self._ancestors)
        if action is True:
            self._open.append(element)
            self._expat.CharacterDataHandler = self._text
            return
        if action:
            place = content - 1 - found[0].endswith(b"/>")
            self._insertions.append(Splice(place, place, str(action)))
        self._ancestors.append(element)

    def _text(self, text: str) -> None:
        self._open[-1].children.append(text)

    def _end(self, tag: str) -> None:
        if not self._open:
            self._ancestors.pop()
            return
        element = self._open.pop()
        place = self._expat.CurrentByteIndex
        if self._buffer.endswith(b"/>", 0, element.content - self._base):  # where expat gives no place of an end tag
            element.stop = element.end = element.content
        else:
            element.stop = place
            element.end = self._base + self._buffer.index(b">", place - self._base) + 1
        if not self._open:
            self._expat.CharacterDataHandler = None
            gap = self._take(element.start)
            raw = self._take(element.end)
            _shift(element, element.start)
            self._found.append((gap, Unit(element, list(self._ancestors), raw)))


def _shift(element: Element, by: int) -> None:
    """Counts the places of an element, and of those in it, from another one on."""
    element.start, element.content = element.start - by, element.content - by
    element.stop, element.end = element.stop - by, element.end - by
    for child in element.children:
        if isinstance(child, Element):
            _shift(child, by)


def _record(gap: bytes, unit: Unit | None, document: XmlFormat, encoding: str) -> Record:
    def encode(content: bytes) -> bytes:
        return content if encoding == "utf-8" else content.decode().encode(encoding, "xmlcharrefreplace")

    if unit is None:
        return kept(encode(gap), 0)
    change = document.change(unit)

    def write(translations: Sequence[str]) -> Written:
        splices, differences = change.apply(translations)
        return Written(encode(gap + splice(unit.raw, splices)), differences)

    size = len(gap) + len(unit.raw)
    return Record(unit.element.line, size, write, change.texts, change.faults, change.left)


def _full_blocks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Blocks of the same size, in whatever parts they come: what is a record must not depend on that."""
    block = b""
    while part := read(BLOCK_BYTES - len(block)):
        block += part
        if len(block) == BLOCK_BYTES:
            yield block
            block = b""
    if block:
        yield block


def _find_encoding(start: bytes, name: str) -> str:
    """By a byte order mark, else as the document declares it (XML 1.0, appendix F)."""
    declared = _DECLARED.match(start)
    encoding = next((encoding for mark, encoding in _MARKS if start.startswith(mark)), None) or (
        declared[1].decode().lower() if declared else "utf-8"
    )
    try:
        text_decoder(encoding)
    except LookupError as error:
        raise InputError(f"{name} is in {encoding}, an encoding that is not known; convert it to UTF-8") from error
    return "utf-8" if codecs.lookup(encoding).name == "utf-8" else encoding


def _decoded(blocks: Iterable[bytes], encoding: str, name: str) -> Iterator[bytes]:
    """A document as UTF-8."""
    if encoding == "utf-8":
        yield from blocks
        return
    decoder = text_decoder(encoding)
    try:
        for block in blocks:
            yield decoder.decode(block).encode()
        yield decoder.decode(b"", True).encode()
    except UnicodeError as error:
        raise InputError(f"{name} is not {encoding}, as its beginning says: {error}") from error
