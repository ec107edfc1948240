"""Translation memories in TMX 1.4 (the localisation industry's exchange format), streamed with expat.

Only the text of segments is read.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...console.input_error import InputError
from ..text.bad_lines import BadLines
from ..text.files import find_file, open_binary
from ..text.lines import blocks
from ..text.xml_parsing import XmlParser
from .reader import FileFormat, FileReader, Request

LONGEST_SEGMENT = 1 << 20
"""Bytes of UTF-8. A longer segment is no sentence or paragraph."""
LANGUAGES_LISTED = 20

_CODES = frozenset(["bpt", "ept", "ph", "it", "ut"])
"""Elements within a segment whose content is formatting code of the original program, not text (TMX 1.4b, section 3.3);
a `sub` occurs inside those only. The text inside `hi` belongs to the segment."""
_WHITE_SPACE = re.compile(r"[ \t\r\n]+")  # XML's; a no-break space is text


@dataclass(frozen=True, kw_only=True)
class TranslationMemory(FileReader):
    """A TMX file, compressed or not, as pairs of the segments of two languages.

    `en` stands for `en-US`, `EN_gb` and the like as well, unless the unit has a segment in exactly the language asked
    for. Of several segments in one language the first counts. Units that lack one of the languages are counted as
    "language missing", in either mode.
    """

    source_language: str
    target_language: str

    def rows(self, bad: BadLines) -> Iterator[tuple[str, str]]:
        """Source and target of each unit."""
        path = find_file(self.path)
        units = _Units(path, (self.source_language, self.target_language), bad)
        with open_binary(path) as file:
            for block in blocks(file):
                yield from units.feed(block)
            yield from units.close()


def _reader(path: Path, request: Request) -> TranslationMemory:
    source, target = request.names
    return TranslationMemory(path=path, source_language=source, target_language=target)


TMX = FileFormat(name="tmx", endings=(".tmx",), reader=_reader, has_text=False)


class _Units:
    """The translation units of a TMX document that comes in blocks of bytes.

    Args:
        path: for messages.
        languages: codes of the source and the target language.
        bad: what to do with a segment that is too long.
    """

    def __init__(self, path: Path, languages: tuple[str, str], bad: BadLines):
        self._path = path
        self._asked = languages
        self._languages = tuple(map(normal_language, languages))
        self._prefixes = tuple(f"{language}-" for language in self._languages)
        self._bad = bad
        self._pairs: list[tuple[str, str]] = []  # complete, not yet handed out
        self._has_pairs = False
        self._languages_seen: Counter[str] = Counter()

        self._line = 0  # where the current unit begins
        self._variants: dict[str, str | None] = {}  # its segments by language; None is one that is too long
        self._language = ""  # of the current variant (tuv)
        self._parts: list[str] = []  # the text of the current segment, if it is in one of the languages
        self._length = 0  # its characters
        self._code_depth = 0  # how many elements deep in formatting code

        self._parser = XmlParser(str(path))
        self._expat = self._parser.expat
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end

    def feed(self, block: bytes) -> list[tuple[str, str]]:
        """The pairs of the units that end in this block."""
        self._parser.feed(block)
        pairs, self._pairs = self._pairs, []
        return pairs

    def close(self) -> list[tuple[str, str]]:
        """The pairs that are left at the end of the document."""
        self._parser.close()
        if not self._has_pairs:
            if not self._languages_seen:
                raise InputError(f"{self._path} has no segment in any language; is it a TMX file?")
            listed = ", ".join(language for language, _ in self._languages_seen.most_common(LANGUAGES_LISTED))
            raise InputError(
                f"{self._path} has no unit in both {self._asked[0]} and {self._asked[1]}; its languages are {listed}"
            )
        return self._pairs

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._code_depth:
            self._code_depth += 1
        elif tag == "seg":
            if f"{self._language}-".startswith(self._prefixes):
                self._parts, self._length = [], 0
                self._expat.CharacterDataHandler = self._text
        elif tag == "tuv":
            language = attributes.get("xml:lang") or attributes.get("lang", "")  # lang: before TMX 1.4
            self._language = normal_language(language)
            self._languages_seen[language] += 1
        elif tag == "tu":
            self._variants = {}
            self._line = self._parser.line
        elif tag in _CODES:
            self._code_depth = 1

    def _text(self, text: str) -> None:
        if not self._code_depth and self._length <= LONGEST_SEGMENT:
            self._parts.append(text)
            self._length += len(text)

    def _end(self, tag: str) -> None:
        if self._code_depth:
            self._code_depth -= 1
        elif tag == "seg":
            if self._expat.CharacterDataHandler:
                self._expat.CharacterDataHandler = None
                self._variants.setdefault(self._language, _segment("".join(self._parts)))
        elif tag == "tu":
            self._end_unit()

    def _end_unit(self) -> None:
        source, target = map(self._find_variant, self._languages)
        if source is None or target is None or source == target:
            self._bad.counts["language missing"] += 1
            return
        self._has_pairs = True
        source_text, target_text = self._variants[source], self._variants[target]
        if source_text is None or target_text is None:
            detail = f"a segment of more than {LONGEST_SEGMENT:,} bytes; it must be a sentence or a paragraph"
            self._bad.report(f"{self._path}, line {self._line}", "segment too long", detail)
        else:
            self._pairs.append((source_text, target_text))

    def _find_variant(self, asked: str) -> str | None:
        """The code of the current unit's segment for a language; never the one that is exactly the other language."""
        if asked in self._variants:
            return asked
        regional = f"{asked}-"
        return next(
            (code for code in self._variants if code.startswith(regional) and code not in self._languages), None
        )


def normal_language(language: str) -> str:
    """A language's code as it is compared: `en_US` and `EN-us` are `en-us`."""
    return language.replace("_", "-").lower()


def _segment(text: str) -> str | None:
    if len(text) > LONGEST_SEGMENT // 4 and len(text.encode()) > LONGEST_SEGMENT:  # at most 4 bytes a character
        return None
    return _WHITE_SPACE.sub(" ", text).strip(" ")
