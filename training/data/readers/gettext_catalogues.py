"""Gettext message catalogues (`.po`, `.mo`), the translations of programs' messages, read by polib.

Polib drops the last character of a string that is cut off, and takes what is missing in a `.mo` file for empty text;
so both are looked through for damage before.
"""

import encodings
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from gettext import c2py
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import polib
from babel.localedata import exists as is_locale

from ...atomic_files import writing
from ...console.input_error import InputError
from ..text.bad_lines import BadLines
from ..text.files import find_file, open_binary, without_compression
from ..text.lines import blocks
from ..text.placeholders import find_placeholders
from .reader import FileFormat, FileReader

LARGEST_CATALOGUE = 256 << 20
"""Bytes, uncompressed. Polib holds a whole catalogue in memory."""

_PLURAL_FORMS = re.compile(r"\bplural\s*=\s*([^;]+)")
_LINE = re.compile(r"\(line (\d+)\)")
_PO_HEADER = re.compile(rb'^msgid[ \t]*""\s*^msgstr(.*?)(?=^msgid|\Z)', re.MULTILINE | re.DOTALL)
_LANGUAGE_HEADER = re.compile(rb'(?:^|\\n|")Language:[ \t]*([\w@.-]+)', re.MULTILINE)
_TIGHT_COMMENT = re.compile(r"^([ \t]*#(?:[.:,|]|~(?=[m\"]))?)(?=[^\s.:,|~#])", re.MULTILINE)
_KEYWORDS = re.compile(r"^[ \t]*(msgctxt|msgid|msgstr)", re.MULTILINE)
_BROKEN_STRING = re.compile(
    r"""^[ \t]* (?= msg | " ) (?! (?: msg[a-z_]+ (?: \[\d\] )? [ \t]* )? " (?: [^"\\\r\n] | \\. )* " [ \t]* \r?$ )""",
    re.MULTILINE | re.VERBOSE,
)


@dataclass(frozen=True, kw_only=True)
class GettextCatalogues(FileReader):
    """The catalogues below a folder, or one of them, as pairs of a message and its translation.

    Where a folder has both `x.po` and `x.mo`, the first is read. Fuzzy, obsolete and untranslated messages are left
    out. A message with plural forms gives its singular, if the first form of the language is that of one thing, and
    its plural with the last form. The text stays as it is: placeholders, markup, accelerator marks, line ends.

    A message whose translation has other placeholders is a bad line: one that is lost or altered breaks the program,
    and teaches a model to do so.
    """

    path: Path
    """The file, or a folder of which the files `.po` and `.mo` are read."""

    target_language: str | None = None
    """Read the catalogues of this language only: by their header, else by their own name or the nearest folder's.
    `pt` stands for `pt_BR` as well, but not the other way round."""

    def files(self) -> list[Path]:
        """The catalogues that are read."""
        return [path for path, _ in self._catalogues()]

    def rows(self, bad: BadLines) -> Iterator[tuple[str, str]]:
        """Message and translation."""
        for path, content in self._catalogues():
            if without_compression(path).suffix == ".mo":
                catalogue = _parse_mo(content, path)
            else:
                catalogue = parse_po(content, path)
            first_is_singular = first_is_singular_of(catalogue.metadata.get("Plural-Forms", ""))
            for number, entry in enumerate(catalogue, start=1):
                if entry.obsolete or "fuzzy" in entry.flags or not entry.msgid:
                    continue
                line = getattr(entry, "linenum", None)  # 0 of the first entry; none in a .mo file
                place = f"{path}, message {number}" if line is None else f"{path}, line {max(line, 1)}"
                for message, translation in _translations(entry, first_is_singular):
                    if fault := _fault(message, translation):
                        bad.report(place, *fault)
                    else:
                        yield message, translation

    def _catalogues(self) -> Iterator[tuple[Path, bytes]]:
        """The files that are to be read, in the order of their paths, with their content.

        Raises:
            InputError: if there are none, if they are all in other languages, or if one cannot be read.
        """
        others: set[str] = set()
        is_empty = True
        for path in self._paths():
            content = read_catalogue(path)
            if self.target_language is not None:
                language = _language(content, path)
                if not _is_language(language, self.target_language):
                    others.add(language or "(not said)")
                    continue
            is_empty = False
            yield path, content
        if is_empty:
            found = f" in {self.target_language}; there are {', '.join(sorted(others))}" if others else " (.po or .mo)"
            raise InputError(f"{self.path} has no message catalogue{found}")

    def _paths(self) -> list[Path]:
        if not self.path.is_dir():
            return [find_file(self.path)]
        paths = [path for path in self.path.rglob("*") if without_compression(path).suffix in (".po", ".mo")]
        chosen: dict[Path, Path] = {}
        for path in sorted(paths, key=lambda path: (without_compression(path).suffix == ".mo", path)):
            if path.is_file():
                chosen.setdefault(without_compression(path).with_suffix(""), path)
        return sorted(chosen.values())


GETTEXT = FileFormat(
    name="gettext",
    endings=(".po", ".mo"),
    reader=lambda path, request: GettextCatalogues(path=path, target_language=request.names[1]),
    has_text=False,
    in_folders="**/*.[pm]o",
)


def read_catalogue(path: Path) -> bytes:
    """The bytes of a catalogue, which may be compressed.

    Raises:
        InputError: if it cannot be read, or is larger than `LARGEST_CATALOGUE`.
    """
    content = bytearray()
    with open_binary(path) as file:
        for block in blocks(file):
            content += block
            if len(content) > LARGEST_CATALOGUE:
                raise InputError(
                    f"{path} has more than {LARGEST_CATALOGUE:,} bytes; a catalogue is held in memory, so split it"
                )
    return bytes(content)


def _language(content: bytes, path: Path) -> str:
    """The language of a catalogue, as its header or else the nearest part of its path says; empty if none does."""
    if without_compression(path).suffix == ".mo":
        messages, translations = _mo_tables(content, path)
        has_header = len(messages) > 0 and messages[0, 0] == 0
        length, offset = translations[0] if has_header else (0, 0)
        header = content[offset : offset + length]
    else:
        header = header_of(content)
    said = [match[1].decode("ascii") for match in _LANGUAGE_HEADER.finditer(header)]
    names = [*said, without_compression(path).stem, *reversed(path.parent.parts)]
    return next((name for name in names if _is_language_code(_codes(name)[0])), "")


def _is_language_code(name: str) -> bool:
    """Whether it is one: no folder's name such as `po` or `app`, nor `Russian`, which some headers say."""
    return re.fullmatch("[a-z]{2,3}", name) is not None and is_locale(name)


def _is_language(language: str, asked: str) -> bool:
    codes = _codes(asked)
    return _codes(language)[: len(codes)] == codes


def _codes(locale: str) -> list[str]:
    """The parts of a locale's name: de_AT.UTF-8 or sr@latin."""
    return re.split("[-_@.]", locale.lower())


def parse_po(content: bytes, path: Path) -> polib.POFile:
    """A catalogue with its messages.

    Raises:
        InputError: if it is damaged or cut off; the message names the line.
    """
    return _parse(_decode(content, path), str(path), 1)


def parse_messages(text: str, name: str, first_line: int) -> Iterator[polib.POEntry]:
    """Some whole messages of a catalogue, each with the number of its line in `linenum`; a header is one of them.

    Args:
        text: their lines.
        name: of the catalogue, for messages.
        first_line: the number of their first line.

    Raises:
        InputError: as `parse_po`.
    """
    for entry in _parse(text, name, first_line, _Messages):
        entry.linenum += first_line - 1
        yield entry


class _Messages(polib.POFile):
    """Messages of which none is taken for the header: polib takes any without a text."""

    def find(self, *_: object, **__: object) -> None:
        """Finds none."""


def _parse(text: str, name: str, first_line: int, kind: type[polib.POFile] = polib.POFile) -> polib.POFile:
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
            return polib.pofile(copy.name, encoding="utf-8", klass=kind)
        except OSError as error:
            reason = str(error).replace(f"{copy.name} ", "")
            reason = _LINE.sub(lambda match: f"(line {int(match[1]) + first_line - 1})", reason)
            raise InputError(f"{name} is not a message catalogue: {reason}") from error


def header_of(content: bytes) -> bytes:
    """The translation of the message without a text, which is the header of a `.po` file; empty if it has none."""
    match = _PO_HEADER.search(content)
    return match[1] if match else b""


def encoding_of(content: bytes) -> str:
    """The encoding that a catalogue's header names; UTF-8 if it is not one of Python's own."""
    encoding = polib.detect_encoding(b"\0" + content)  # which is not the name of a file, whatever the content
    return encoding if encodings.search_function(encoding.lower()) else polib.default_encoding


def _decode(content: bytes, path: Path) -> str:
    """The text of a `.po` file, by the encoding that its header names.

    Raises:
        InputError: if that is not its encoding.
    """
    encoding = encoding_of(content)
    try:
        text = content.decode(encoding)
        text.encode()  # some of Python's codecs give lone surrogates
    except (UnicodeError, LookupError) as error:
        place = f"{path}, byte {error.start + 1}" if isinstance(error, UnicodeDecodeError) else str(path)
        raise InputError(f"{place}: it cannot be read as {encoding}, the encoding of its header: {error}") from error
    return text


def _parse_mo(content: bytes, path: Path) -> polib.MOFile:
    _mo_tables(content, path)
    try:
        return polib.mofile(content, encoding=encoding_of(content))
    except (OSError, UnicodeError, LookupError) as error:
        raise InputError(f"{path} is not a message catalogue: {error}") from error


def _mo_tables(content: bytes, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Length and offset of every message and of every translation; each (messages, 2).

    (The GNU gettext manual, section "The Format of GNU MO Files".)

    Raises:
        InputError: if it is no such file, or if one of them is not inside it.
    """
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(content[:4])
    if order is None or len(content) < 20:
        raise InputError(f"{path} is not a compiled message catalogue (.mo): it has not the first bytes of one")
    messages, *offsets = struct.unpack_from(f"{order}8xIII", content)
    tables = []
    for offset in offsets:
        if offset + 8 * messages > len(content):
            raise InputError(f"{path} is damaged or cut off: its table of {messages:,} messages is not all there")
        table = np.frombuffer(content, f"{order}u4", 2 * messages, offset).astype(np.int64).reshape(messages, 2)
        if (table.sum(axis=1) > len(content)).any() or table[:, 0].sum() > len(content):
            raise InputError(f"{path} is damaged or cut off: it is shorter than its messages")
        tables.append(table)
    return tables[0], tables[1]


def first_is_singular_of(plural_forms: str) -> bool:
    """Whether one thing takes the first form, as a header such as `nplurals=2; plural=(n != 1);` says.

    In Arabic the form of no things comes first. Without a header that can be read it is true, as for most languages.
    """
    if not (match := _PLURAL_FORMS.search(plural_forms)):
        return True
    try:
        return c2py(match[1])(1) == 0
    except (ValueError, SyntaxError, ZeroDivisionError):
        return True


def _translations(entry: polib.POEntry | polib.MOEntry, first_is_singular: bool) -> Iterator[tuple[str, str]]:
    if not entry.msgid_plural:
        forms = [(entry.msgid, entry.msgstr)]
    else:
        translations = entry.msgstr_plural
        forms = [(entry.msgid_plural, translations[max(translations)])] if translations else []
        if first_is_singular and len(translations) > 1:
            forms.insert(0, (entry.msgid, translations.get(0, "")))
    yield from ((message, translation) for message, translation in forms if translation)


def _fault(message: str, translation: str) -> tuple[str, str] | None:
    """Why a pair cannot be used, as reason and detail."""
    if "\0" in message or "\0" in translation:
        return "NUL byte", "the message or its translation has a NUL byte; a text has none"
    try:
        (message + translation).encode()
    except UnicodeEncodeError:
        return "lone surrogate", "the message or its translation has half of a surrogate pair; it is wrongly encoded"
    here, there = frozenset(find_placeholders(message)), frozenset(find_placeholders(translation))
    if here == there:
        return None
    only_here, only_there = (", ".join(sorted(names)) or "none" for names in (here - there, there - here))
    detail = f"placeholders only in the message: {only_here}; only in the translation: {only_there}; they must be equal"
    return "placeholders differ", detail
