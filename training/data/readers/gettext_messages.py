"""The messages of a gettext catalogue (`.po`), one behind the other: what is in memory does not grow with the file.

Polib says what is in each. It reads whole catalogues only, in twenty times their size, so it is given some messages at
a time; and as it drops the last character of a string that is cut off, these are looked through for damage before.
"""

import encodings
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile

import polib

from ...atomic_files import writing
from ...console.input_error import InputError
from ..text.decoding import text_decoder

LOOK_AHEAD = 1 << 20
"""Bytes of the beginning that have the header."""

BLOCK_BYTES = 1 << 16

LONGEST_MESSAGE = 1 << 24
"""Characters: 16 M."""

BATCH = 1 << 18
"""Characters that are parsed together."""

_PO_HEADER = re.compile(rb'^msgid[ \t]*""\s*^msgstr(.*?)(?=^msgid|\Z)', re.MULTILINE | re.DOTALL)
# Of obsolete messages, whose lines begin with #~, the keywords count as well: each is a message of its own.
_BEGINNING = re.compile(r'[ \t]*(?:#~[ \t]*(?=[m"]))?(#|msgctxt|msgid(?!_)|msgstr|")')
_TIGHT_COMMENT = re.compile(r"^([ \t]*#(?:[.:,|]|~(?=[m\"]))?)(?=[^\s.:,|~#])", re.MULTILINE)
_KEYWORDS = re.compile(r"^[ \t]*(msgctxt|msgid|msgstr)", re.MULTILINE)
_LINE = re.compile(r"\(line (\d+)\)")
_BROKEN_STRING = re.compile(
    r"""^[ \t]* (?= msg | " ) (?! (?: msg[a-z_]+ (?: \[\d\] )? [ \t]* )? " (?: [^"\\\r\n] | \\. )* " [ \t]* \r?$ )""",
    re.MULTILINE | re.VERBOSE,
)


@dataclass
class Message:
    """The lines of a message, with the comments before it and what is empty behind it; or what is behind the last."""

    line: int
    """The number of the first."""

    lines: list[str] = field(default_factory=list)

    is_filled: bool = False
    """Whether they have come to its translation."""

    entries: list[polib.POEntry] = field(default_factory=list)
    """What polib makes of them: one; none, if there are comments only; more, if a comment stands in the middle."""

    @property
    def text(self) -> str:
        """As it is in the file."""
        return "".join(self.lines)


def beginning(read: Callable[[int], bytes]) -> bytes:
    """The first bytes of a catalogue, which have its header.

    Args:
        read: gives its bytes, up to so many.
    """
    head = bytearray()
    while len(head) < LOOK_AHEAD and (part := read(LOOK_AHEAD - len(head))):
        head += part
    return bytes(head)


def header_of(content: bytes) -> bytes:
    """The translation of the message without a text, which is the header of a catalogue; empty if it has none."""
    match = _PO_HEADER.search(content)
    return match[1] if match else b""


def encoding_of(content: bytes) -> str:
    """The encoding that a catalogue's header names; UTF-8 if it is not one of Python's own."""
    encoding = polib.detect_encoding(b"\0" + content)  # which is not the name of a file, whatever the content
    return encoding if encodings.search_function(encoding.lower()) else polib.default_encoding


def read_messages(head: bytes, read: Callable[[int], bytes], name: str) -> Iterator[Message]:
    """The messages of a catalogue, of which the header is one; what stands behind the last is one as well.

    Args:
        head: its beginning.
        read: gives the rest.
        name: of the catalogue, for messages.

    Raises:
        InputError: if it is none, or damaged or cut off, or has not the encoding that its header names; it says where.
    """
    texts = _decoded(chain([head], iter(lambda: read(BLOCK_BYTES), b"")), encoding_of(header_of(head)), name)
    for batch in _batches(_divide(texts, name)):
        yield from _with_entries(batch, name)


def _with_entries(batch: Sequence[Message], name: str) -> Iterator[Message]:
    entries = iter(_parse("".join(message.text for message in batch), name, batch[0].line))
    following = next(entries, None)
    for message in batch:
        end = message.line + len(message.lines)
        while following is not None and following.linenum < end:
            message.entries.append(following)
            following = next(entries, None)
        yield message


def _decoded(blocks: Iterable[bytes], encoding: str, name: str) -> Iterator[str]:
    fault = f"it cannot be read as {encoding}, the encoding of its header"
    try:
        decoder, done = text_decoder(encoding), 0
    except LookupError as error:
        raise InputError(f"{name}: {fault}: {error}") from error
    for block in chain(blocks, [b""]):
        waiting = len(decoder.getstate()[0])  # the beginning of a character
        try:
            text = decoder.decode(block, final=not block)
            text.encode()  # some of Python's codecs give lone surrogates
        except UnicodeError as error:
            place = f", byte {done - waiting + error.start + 1}" if isinstance(error, UnicodeDecodeError) else ""
            raise InputError(f"{name}{place}: {fault}: {error}") from error
        done += len(block)
        yield text


def _divide(texts: Iterable[str], name: str) -> Iterator[Message]:
    message, size = Message(1), 0
    for number, line in enumerate(_lines(texts), start=1):
        said = _BEGINNING.match(line)
        keyword = "" if said is None else said[1]
        if keyword in ("#", "msgctxt", "msgid") and message.is_filled:
            yield message
            message, size = Message(number), 0
        message.lines.append(line)
        message.is_filled |= keyword == "msgstr"
        size += len(line)
        if size > LONGEST_MESSAGE:
            raise InputError(f"{name}, line {message.line}: a message of more than {LONGEST_MESSAGE:,} characters")
    if message.lines:
        yield message


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Lines with their ends; only a line feed is one. One that is far too long comes in parts."""
    rest = ""
    for text in texts:
        *complete, rest = (rest + text).split("\n")
        yield from (f"{line}\n" for line in complete)
        if len(rest) > LONGEST_MESSAGE:
            yield rest
            rest = ""
    if rest:
        yield rest


def _batches(messages: Iterable[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    size = 0
    for message in messages:
        batch.append(message)
        size += sum(map(len, message.lines))
        if size > BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Entries(polib.POFile):
    """Entries of which none is taken for the header: polib takes any without a text."""

    def find(self, *_: object, **__: object) -> None:
        """Finds none."""


def _parse(text: str, name: str, first_line: int) -> Sequence[polib.POEntry]:
    """Some whole messages, each with the number of its line in `linenum`."""
    if match := _BROKEN_STRING.search(text):
        line = text.count("\n", 0, match.start()) + first_line
        raise InputError(f'{name}, line {line}: a broken string; it must be KEYWORD "TEXT", or "TEXT" to go on')
    keywords = _KEYWORDS.findall(text)
    if keywords and keywords[-1] != "msgstr":
        raise InputError(f"{name} ends before the translation of its last message; it is cut off")
    with NamedTemporaryFile(suffix=".po") as copy:  # polib splits a text at U+2028 and the like, a file it does not
        with writing(Path(copy.name)):
            # `#note` and `#,fuzzy` are as good as with a space to gettext, and a fault to polib.
            copy.write(_TIGHT_COMMENT.sub(r"\1 ", text).encode())
            copy.flush()
        try:
            entries = polib.pofile(copy.name, encoding="utf-8", klass=_Entries)
        except OSError as error:
            reason = str(error).replace(f"{copy.name} ", "")
            reason = _LINE.sub(lambda match: f"(line {int(match[1]) + first_line - 1})", reason)
            raise InputError(f"{name} is not a message catalogue: {reason}") from error
    for entry in entries:
        entry.linenum = max(entry.linenum, 1) + first_line - 1  # 0 of the first
    return entries
