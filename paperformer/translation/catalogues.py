"""Message catalogues of gettext, translated: the same file, with what was untranslated filled in."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from ..training.atomic_files import replace_file
from ..training.data.readers.gettext_catalogues import (
    decode_catalogue,
    encoding_of,
    first_is_singular_of,
    parse_po,
    read_catalogue,
)
from ..training.data.text.placeholders import find_difference
from .formats.marked_text import MarkedText, text_of
from .line_output import OutputFile
from .line_source import ReadAhead
from .streaming import work_in_windows

if TYPE_CHECKING:
    import polib

Translate = Callable[[Sequence[str]], list[str]]
Confidences = Callable[[Sequence[str], Sequence[str]], list[float]]

_NPLURALS = re.compile(r"\bnplurals\s*=\s*(\d+)")
_GAP = re.compile(r"((?:^[ \t]*\r?\n)+)", re.MULTILINE)
_MESSAGE = re.compile(r'^msgid[ \t]+"', re.MULTILINE)
_TRANSLATION = re.compile(r"^msgstr.*(?:\n(?:msgstr|\").*)*\n?", re.MULTILINE)
_FLAGS = re.compile(r"^#,[ \t]*", re.MULTILINE)
_FUZZY = re.compile(r"^#,.*\bfuzzy\b", re.MULTILINE)
_KEYWORD = re.compile(r"^(?:#\||msgctxt|msgid)", re.MULTILINE)
_CHARSET = re.compile(r"(Content-Type:[^\\\n]*charset=)[\w.:-]+")


@dataclass
class TranslatedCatalogue:
    """What came of a catalogue."""

    content: bytes
    """The file."""

    filled: int = 0
    """Messages that have been translated."""

    fuzzy: dict[str, int] = field(default_factory=dict)
    """Why some of them are marked as fuzzy, and how many."""

    kept: int = 0
    """Messages that were translated already, fuzzy ones among them."""


class FilledForm(NamedTuple):
    """What has been made of a form of a message."""

    translation: str
    confidence: float
    """How sure the model is of it, from 0 to 1."""


@dataclass
class _Form:
    """One form of a message, to be filled in."""

    entry: "polib.POEntry"
    index: int | None
    """Which plural form it is; None of a message that has none."""
    source: str

    def fault(self, filled: FilledForm, fuzzy_below: float) -> str | None:
        """Why a person should look at it."""
        if difference := find_difference(self.source, filled.translation):
            return difference.reason
        return "unsure" if filled.confidence < fuzzy_below else None


class Catalogue:
    """A `.po` file, or a template, whose messages without a translation are to be filled in.

    Raises:
        InputError: if it is no catalogue, or a damaged one.
    """

    def __init__(self, path: Path):
        self._raw = read_catalogue(path)
        self._text, self._parsed = decode_catalogue(self._raw, path), parse_po(self._raw, path)
        self._forms = list(_forms_to_fill(self._parsed))

    def __len__(self) -> int:
        """How many forms of messages there are to fill in."""
        return len(self._forms)

    def fill(
        self,
        translate: Translate,
        confidences: Confidences,
        fuzzy_below: float,
        *,
        known: Sequence[FilledForm] = (),
        keep: Callable[[Sequence[FilledForm]], None] = lambda _: None,
    ) -> TranslatedCatalogue:
        """Fills in the messages that have no translation, once.

        All else stays as it is, to the byte where each message is a paragraph of the file, as gettext writes it. A
        message is marked as fuzzy, so that programs do not use it before somebody has looked at it, if its translation
        has other placeholders, tags or numbers, or if the model is unsure of it. White space around a line, and where
        lines end, are the message's. The encoding becomes UTF-8 where the translations need it.

        Args:
            translate: texts to translations, one for one.
            confidences: how sure the model is of translations of texts, each from 0 to 1.
            fuzzy_below: how sure it has to be.
            known: the first forms, as an earlier call has given them to `keep`.
            keep: told of the others, some at a time.
        """
        filled = [*known]

        def work(window: list[_Form]) -> list[FilledForm]:
            return _fill_forms(window, translate, confidences)

        for found in work_in_windows(ReadAhead(iter(self._forms[len(filled) :]), lambda form: len(form.source)), work):
            keep(found)
            filled += found
        pairs = [(form, one) for form, one in zip(self._forms, filled, strict=True) if one.translation.strip()]
        changed = {id(form.entry) for form, _ in pairs}
        result = TranslatedCatalogue(b"", filled=len(changed), kept=len(_messages(self._parsed)) - len(changed))
        for form, one in pairs:
            entry = form.entry
            if form.index is None:
                entry.msgstr = one.translation
            else:
                entry.msgstr_plural[form.index] = one.translation
            fault = form.fault(one, fuzzy_below)
            if fault is not None and "fuzzy" not in entry.flags:
                entry.flags.insert(0, "fuzzy")
                result.fuzzy[fault] = result.fuzzy.get(fault, 0) + 1
        result.content = _write(self._text, self._parsed, changed, encoding_of(self._raw))
        return result


def _fill_forms(forms: Sequence[_Form], translate: Translate, confidences: Confidences) -> list[FilledForm]:
    marked = [MarkedText([form.source]) for form in forms]
    translated = iter(translate([text for one in marked for text in one.texts]))
    translations = [text_of(one.fill(list(islice(translated, len(one.texts))))) for one in marked]
    written = [place for place, translation in enumerate(translations) if translation.strip()]
    sure = confidences([forms[place].source for place in written], [translations[place] for place in written])
    by_place = dict(zip(written, sure, strict=True))
    return [FilledForm(translation, by_place.get(place, 1.0)) for place, translation in enumerate(translations)]


class CatalogueFile(OutputFile):
    """A catalogue that is complete or not there; until then `FILE.part` has what is translated, a JSON line a form.

    See `OutputFile`; what is written at the end is what was given to `finish`.
    """

    unit = "translations"
    _content: bytes | None = None

    def known(self) -> list[FilledForm]:
        """What an earlier run has translated."""
        lines = self.part.read_text("utf-8").splitlines() if self.done else []
        return [FilledForm(*json.loads(line)) for line in lines]

    def keep(self, forms: Sequence[FilledForm]) -> None:
        """Writes what has been translated, so that no end of this process loses it."""
        self.write([json.dumps(form) for form in forms])

    def finish(self, content: bytes) -> None:
        """Takes what the file is to be."""
        self._content = content

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None or self._content is None:
            super().__exit__(kind, failure, traceback)
            return
        self._file.close()
        replace_file(self.path, self._content)
        for begun in (self.part, self.begun):
            begun.unlink(missing_ok=True)


def _messages(catalogue: "polib.POFile") -> "list[polib.POEntry]":
    return [entry for entry in catalogue if not entry.obsolete]


def _forms_to_fill(catalogue: "polib.POFile") -> Iterator[_Form]:
    header = catalogue.metadata.get("Plural-Forms", "")
    said = _NPLURALS.search(header)
    for entry in _messages(catalogue):
        if not entry.msgid_plural:
            if not entry.msgstr:
                yield _Form(entry, None, entry.msgid)
            continue
        count = int(said[1]) if said else max(2, *(index + 1 for index in entry.msgstr_plural))
        for index in range(count):
            if not entry.msgstr_plural.get(index):
                of_one = index == 0 and count > 1 and first_is_singular_of(header)
                yield _Form(entry, index, entry.msgid if of_one else entry.msgid_plural)


def _write(text: str, catalogue: "polib.POFile", changed: set[int], encoding: str) -> bytes:
    """The file with the changed messages, and everything else as it was."""
    width = max((len(line) for line in text.splitlines() if line.startswith(('"', "msg"))), default=0)
    catalogue.wrapwidth = 0 if width > 81 else 78  # as the file has it: Weblate and others do not wrap
    parts = _GAP.split(text)
    places = [place for place, part in enumerate(parts) if _MESSAGE.search(part)]
    messages = _messages(catalogue)
    has_header = len(places) == len(messages) + 1
    if has_header and all(len(_MESSAGE.findall(parts[place])) == 1 for place in places):
        for place, entry in zip(places[1:], messages, strict=True):
            if id(entry) in changed:
                parts[place] = _fill_in(parts[place], entry, catalogue.wrapwidth)
        text = "".join(parts)
    else:  # messages without an empty line between them
        text = str(catalogue)
        text += "" if text.endswith("\n") else "\n"
    try:
        return _CHARSET.sub(lambda match: match[1] + encoding, text, count=1).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _CHARSET.sub(lambda match: match[1] + "UTF-8", text, count=1).encode()


def _fill_in(block: str, entry: "polib.POEntry", width: int) -> str:
    """A message's paragraph with another translation, and perhaps a flag more."""
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
