"""Message catalogues of gettext (`.po`, `.pot`): the same file, with what was untranslated filled in.

They are read message by message, and polib says what is in each; what is written is what was read, with other
translations and perhaps a flag more. So all else stays as it is, to the byte, and some messages are in memory.
"""

import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...training.atomic_files import partial_path, writing
from ...training.console.input_error import InputError
from ...training.data.readers.gettext_catalogues import first_is_singular_of
from ...training.data.readers.gettext_messages import LOOK_AHEAD, Message, beginning, encoding_of, header_of
from ...training.data.readers.gettext_messages import read_messages as read_catalogue
from ...training.data.text.files import open_binary
from ...training.data.text.placeholders import Difference
from .marked_text import MarkedText, text_of
from .record_output import RecordFile
from .records import Record, Written, kept

if TYPE_CHECKING:
    import polib

_NPLURALS = re.compile(r"\bnplurals\s*=\s*(\d+)")
_TRANSLATION = re.compile(r"^[ \t]*msgstr.*(?:\n[ \t]*(?:msgstr|\").*)*\n?", re.MULTILINE)
_FLAGS = re.compile(r"^#,[ \t]*", re.MULTILINE)
_FUZZY = re.compile(r"^#,.*\bfuzzy\b", re.MULTILINE)
_KEYWORD = re.compile(r"^[ \t]*(?:#\||msgctxt|msgid)", re.MULTILINE)
_CHARSET = re.compile(r"(Content-Type:[^\\\n]*charset=)[\w.:-]+")


class SureText(str):
    """A translation that knows how sure the model is of it, from 0 to 1."""

    confidence: float

    def __new__(cls, text: str, confidence: float) -> "SureText":
        """Of the translation and how sure the model is."""
        own = super().__new__(cls, text)
        own.confidence = confidence
        return own

    def __getnewargs__(self) -> tuple[str, float]:  # type: ignore[override]
        return str(self), self.confidence  # it comes from another process


def read_messages(read: Callable[[int], bytes], name: str, fuzzy_below: float) -> Iterator[Record]:
    """The messages of a catalogue, of which those without a translation are filled in.

    A message is marked as fuzzy, so that programs do not use it before somebody has looked at it, if its translation
    has other placeholders, tags or numbers, or if the model is unsure of it. White space around a line, and where lines
    end, are the message's. What is written is UTF-8; see `CatalogueFile`.

    Args:
        read: gives its bytes.
        name: of the file, for messages.
        fuzzy_below: how sure the model has to be of each line of a translation, where that is a `SureText`.

    Raises:
        InputError: if it is no catalogue, or a damaged one; if `fuzzy_below` is no probability.
    """
    if not 0 <= fuzzy_below <= 1:
        raise InputError(f"fuzzy_below is {fuzzy_below}; it must be a probability from 0 to 1")
    head = beginning(read)
    messages = read_catalogue(head, read, name)
    first = list(islice(messages, 1))  # what is not in the encoding that it says is refused by this
    lines = head.decode(encoding_of(header_of(head)), "replace").splitlines()
    width = max((len(line) for line in lines if line.startswith(('"', "msg"))), default=0)
    # As the file has it: Weblate and others do not wrap.
    catalogue = _Catalogue(0 if width > 81 else 78, fuzzy_below)
    yield from map(catalogue.record, chain(first, messages))


@dataclass
class _Catalogue:
    wrap_width: int
    fuzzy_below: float
    plural_forms: str = ""
    """The header, which says how many there are."""

    def record(self, message: Message) -> Record:
        """What is to be done with a message."""
        text, entries = message.text, message.entries
        if len(entries) != 1 or entries[0].obsolete:  # comments at the end; a comment in the middle of a message
            faults = ["not one message: left as it is"] if len(entries) > 1 else []
            return kept(text.encode(), message.line, faults=faults, left="not one message" if faults else "")
        (entry,) = entries
        if not entry.msgid and entry.msgctxt is None:
            self.plural_forms = entry.msgstr
            return kept(self._with_charset(text).encode(), message.line)
        forms = _forms_to_fill(entry, self.plural_forms)
        if not forms:
            return kept(text.encode(), message.line, left="translated already")
        marked = [MarkedText([source]) for _, source in forms]
        if not any(one.texts for one in marked):
            return kept(text.encode(), message.line, left="without text")

        def write(translations: Sequence[str]) -> Written:
            rest, found, is_changed = iter(translations), [], False
            for (index, _), one in zip(forms, marked, strict=True):
                own = list(islice(rest, len(one.texts)))
                tokens = one.fill(own)
                translation = text_of(tokens)
                found += one.review(tokens) or self._doubts(own)
                if not translation.strip():
                    continue
                is_changed = True
                if index is None:
                    entry.msgstr = translation
                else:
                    entry.msgstr_plural[index] = translation
            if not is_changed:
                return Written(text.encode(), found)
            if found and "fuzzy" not in entry.flags:
                entry.flags.insert(0, "fuzzy")
            return Written(_fill_in(text, entry, self.wrap_width).encode(), found)

        texts = [line for one in marked for line in one.texts]
        return Record(message.line, len(text), write, texts, [fault for one in marked for fault in one.faults])

    def _doubts(self, translations: Sequence[str]) -> list[Difference]:
        sure = min((one.confidence for one in translations if isinstance(one, SureText)), default=1.0)
        if sure >= self.fuzzy_below:
            return []
        return [Difference("unsure", f"{sure:.2f} is the mean probability of its tokens")]

    def _with_charset(self, header: str) -> str:
        """A header that says what is written: UTF-8."""
        said = _CHARSET.search(header)
        if said is None or _is_utf8(said[0].removeprefix(said[1])):
            return header
        return _CHARSET.sub(lambda match: match[1] + "UTF-8", header, count=1)


class CatalogueFile(RecordFile):
    """A catalogue that is complete or not there; see `OutputFile`.

    Until then it is UTF-8; then it is in the encoding that it had, if that can hold its translations.

    Args:
        source: the catalogue that is translated; None: standard input, and it stays UTF-8.
        path, request, overwrite: as `OutputFile` takes them.
    """

    def __init__(self, source: Path | None, path: Path, request: Mapping[str, Any], *, overwrite: bool = False):
        self._source = source
        super().__init__(path, request, overwrite=overwrite)

    def _complete(self) -> None:
        if self._source is None or not restore_encoding(self._source, self.part, self.path):
            super()._complete()


def restore_encoding(source: Path, translated: Path, output: Path) -> bool:
    """Writes a catalogue of UTF-8 in the encoding that its source has.

    Returns:
        Whether that has been done: not if it is UTF-8 already, or if the encoding has not all characters.
    """
    with open_binary(source) as file:
        encoding = encoding_of(header_of(beginning(file.read)))
    if _is_utf8(encoding):
        return False
    written = partial_path(output)
    try:
        with writing(output), translated.open(encoding="utf-8", newline="") as before, written.open("wb") as after:
            encoder = codecs.getincrementalencoder(encoding)()
            # The header is the first to have one, and it is in the first part.
            text = _CHARSET.sub(lambda match: match[1] + encoding, before.read(LOOK_AHEAD), count=1)
            while text:
                after.write(encoder.encode(text))
                text = before.read(LOOK_AHEAD)
            after.write(encoder.encode("", final=True))
    except UnicodeEncodeError:
        written.unlink()
        return False
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    written.replace(output)
    return True


def _is_utf8(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name == "utf-8"
    except LookupError:  # CHARSET, as templates have it
        return False


def _forms_to_fill(entry: "polib.POEntry", plural_forms: str) -> list[tuple[int | None, str]]:
    """Which plural forms of a message have no translation, and what is to be translated; None of one without plural."""
    if not entry.msgid_plural:
        return [] if entry.msgstr else [(None, entry.msgid)]
    said = _NPLURALS.search(plural_forms)
    count = int(said[1]) if said else max(2, *(index + 1 for index in entry.msgstr_plural))
    empty = [index for index in range(count) if not entry.msgstr_plural.get(index)]
    first_is_singular = count > 1 and first_is_singular_of(plural_forms)
    return [(index, entry.msgid_plural if index or not first_is_singular else entry.msgid) for index in empty]


def _fill_in(block: str, entry: "polib.POEntry", width: int) -> str:
    """A message's lines with another translation, and perhaps a flag more."""
    end = "\r\n" if "\r\n" in block else "\n"
    translation = _TRANSLATION.search(entry.__unicode__(width))
    assert translation is not None
    written = translation[0].rstrip("\n").replace("\n", end)
    block = _TRANSLATION.sub(lambda old: written + (end if old[0].endswith("\n") else ""), block, count=1)
    if not entry.fuzzy or _FUZZY.search(block):
        return block
    if _FLAGS.search(block):
        return _FLAGS.sub("#, fuzzy, ", block, count=1)
    return _KEYWORD.sub(lambda keyword: f"#, fuzzy{end}{keyword[0]}", block, count=1)
