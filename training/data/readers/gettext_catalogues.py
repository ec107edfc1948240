"""Gettext message catalogues (`.po`, `.mo`), the translations of programs' messages, read by polib.

Polib takes what is missing in a `.mo` file for empty text, so it is looked through for damage before.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from gettext import c2py
from pathlib import Path

import numpy as np
import polib
from babel.localedata import exists as is_locale

from ...console.input_error import InputError
from ..text.bad_lines import BadLines
from ..text.files import find_file, open_binary, without_compression
from ..text.lines import blocks
from ..text.placeholders import find_placeholders
from .gettext_messages import beginning, encoding_of, header_of, read_messages
from .reader import FileFormat, FileReader

LARGEST_MO = 256 << 20
"""Bytes, uncompressed. Polib holds all of a compiled catalogue in memory."""

_PLURAL_FORMS = re.compile(r"\bplural\s*=\s*([^;]+)")
_LANGUAGE_HEADER = re.compile(rb'(?:^|\\n|")Language:[ \t]*([\w@.-]+)', re.MULTILINE)


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
        return list(self._catalogues())

    def rows(self, bad: BadLines) -> Iterator[tuple[str, str]]:
        """Message and translation."""
        for path in self._catalogues():
            first_is_singular = True
            for place, entry in _messages(path):
                if not entry.msgid and entry.msgctxt is None and not entry.obsolete:
                    first_is_singular = first_is_singular_of(entry.msgstr)
                if not entry.msgid or entry.obsolete or "fuzzy" in entry.flags:
                    continue
                for message, translation in _translations(entry, first_is_singular):
                    if fault := _fault(message, translation):
                        bad.report(place, *fault)
                    else:
                        yield message, translation

    def _catalogues(self) -> Iterator[Path]:
        """The files that are to be read, in the order of their paths.

        Raises:
            InputError: if there are none, if they are all in other languages, or if one cannot be read.
        """
        others: set[str] = set()
        is_empty = True
        for path in self._paths():
            if self.target_language is not None:
                language = _language(path)
                if not _is_language(language, self.target_language):
                    others.add(language or "(not said)")
                    continue
            is_empty = False
            yield path
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


def _messages(path: Path) -> Iterator[tuple[str, polib.POEntry | polib.MOEntry]]:
    """What a catalogue has, the header too, and where each is.

    Raises:
        InputError: if it cannot be read, or is damaged.
    """
    if _is_compiled(path):
        # Polib does not count the header among the messages of these.
        catalogue = _parse_mo(_read_mo(path), path)
        yield str(path), polib.MOEntry(msgid="", msgstr=f"Plural-Forms: {catalogue.metadata.get('Plural-Forms', '')}")
        yield from ((f"{path}, message {number}", entry) for number, entry in enumerate(catalogue, start=1))
        return
    with open_binary(path) as file:
        for message in read_messages(beginning(file.read), file.read, str(path)):
            yield from ((f"{path}, line {entry.linenum}", entry) for entry in message.entries)


def _is_compiled(path: Path) -> bool:
    return without_compression(path).suffix == ".mo"


def _read_mo(path: Path) -> bytes:
    """The bytes of a compiled catalogue; the file may be compressed besides.

    Raises:
        InputError: if it cannot be read, or is larger than `LARGEST_MO`.
    """
    content = bytearray()
    with open_binary(path) as file:
        for block in blocks(file):
            content += block
            if len(content) > LARGEST_MO:
                raise InputError(
                    f"{path} has more than {LARGEST_MO:,} bytes; a compiled catalogue is held in memory, so give "
                    "the .po file that it was made of"
                )
    return bytes(content)


def _language(path: Path) -> str:
    """The language of a catalogue, as its header or else the nearest part of its path says; empty if none does."""
    if _is_compiled(path):
        content = _read_mo(path)
        messages, translations = _mo_tables(content, path)
        has_header = len(messages) > 0 and messages[0, 0] == 0
        length, offset = translations[0] if has_header else (0, 0)
        header = content[offset : offset + length]
    else:
        with open_binary(path) as file:
            header = header_of(beginning(file.read))
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
