"""Translation memories (TMX 1.1 to 1.4b): the same document, with a variant more in units that lack the language.

A new variant (`tuv`) says by `creationtool="paperformer"` where it comes from, and by a `prop` why somebody should look
at it, so that machine translations can be told from people's wherever the memory goes.
"""

from collections.abc import Sequence
from importlib.metadata import version
from xml.sax.saxutils import escape, quoteattr

from ...training.console.input_error import InputError
from ...training.data.readers.tmx import normal_language
from ...training.data.text.placeholders import Difference
from .marked_text import MarkedText
from .xml_units import Change, Element, Kind, Splice, Unit, read_tokens, write_tokens

PROPERTY = "x-paperformer-review"
_KINDS: dict[str, Kind] = {"hi": "span", "bpt": "open", "ept": "close"}


class Tmx:
    """What TMX says of its documents.

    Args:
        name: of the file, for messages.
        target_language: the code of the language that is translated into.
        source_language: that of the language that is translated; if empty, the document's `srclang`.

    Raises:
        InputError: if there is no target language.
    """

    def __init__(self, name: str, target_language: str, source_language: str = ""):
        if not target_language:
            raise InputError(f"{name}: into which language? A translation memory has several: say --target_language")
        self._name = name
        self._target = target_language
        self._source = source_language
        self._asked = source_language
        # Asked once: the package's metadata is a file, and a memory has a million units.
        self._tool = f'creationtool="paperformer" creationtoolversion={quoteattr(version("paperformer"))}'

    def enter(self, element: Element, ancestors: Sequence[Element]) -> bool | str:
        """The units are those of the body.

        Raises:
            InputError: if it is no TMX, or does not say from which language it translates.
        """
        if not ancestors and element.name != "tmx":
            raise InputError(f"{self._name} is no TMX file: it begins with <{element.name}>")
        if element.name == "header" and not self._asked:
            self._source = element.attributes.get("srclang", "")
        return element.name == "tu"

    def change(self, unit: Unit) -> Change:
        """Adds a variant in the target language, or fills an empty one in."""
        source_language = self._asked or unit.element.attributes.get("srclang", self._source)
        if source_language.lower() in ("", "*all*"):
            raise InputError(
                f"{self._name}, line {unit.element.line}: it does not say which language is the source (srclang); "
                "say --source_language"
            )
        variants = [(_language(variant), variant) for variant in unit.element.elements("tuv")]
        source = _choose(variants, source_language, self._target)
        target = _choose(variants, self._target, source_language)
        segment = source.child("seg") if source else None
        old = target.child("seg") if target else None
        if source is None or segment is None:
            return Change(left=f"without {source_language}")
        if target is not None and (old is None or not old.is_empty()):
            return Change(left="translated already")
        marked = MarkedText(read_tokens(unit, segment, _kind), keeps_lines=unit.keeps_space(segment))
        if not marked.texts:
            return Change(left="without text")

        def apply(translations: Sequence[str]) -> tuple[list[Splice], list[Difference]]:
            tokens = marked.fill(translations)
            differences = marked.review(tokens)
            written = f"<seg>{write_tokens(tokens)}</seg>"
            if old is not None:
                return [Splice(old.start, old.end, written)], differences
            return [self._variant(unit, source, variants[-1][1], written, differences)], differences

        return Change(marked.texts, apply, marked.faults)

    def _variant(
        self, unit: Unit, source: Element, last: Element, segment: str, differences: Sequence[Difference]
    ) -> Splice:
        """A new variant behind the last, in the layout of that of the source."""
        attribute = "xml:lang" if source.xml("lang") else "lang"  # the latter before TMX 1.4
        inner = unit.space_before(next(child for child in source.children if isinstance(child, Element)))
        outer = unit.space_before(source)
        closing = outer if inner else ""
        reasons = "".join(
            f"{inner}<prop type={quoteattr(PROPERTY)}>{escape(f'{reason}: {detail}')}</prop>"
            for reason, detail in differences
        )
        start = f"<tuv {attribute}={quoteattr(self._target)} {self._tool}>"
        return Splice(last.end, last.end, f"{outer}{start}{reasons}{inner}{segment}{closing}</tuv>")


def _language(variant: Element) -> str:
    return normal_language(variant.xml("lang") or variant.attributes.get("lang", ""))


def _choose(variants: Sequence[tuple[str, Element]], asked: str, other: str) -> Element | None:
    """The variant in a language: exactly, or else of any region, but for what is exactly the other language."""
    asked, other = normal_language(asked), normal_language(other)
    exact = (variant for language, variant in variants if language == asked)
    regional = (variant for language, variant in variants if language.startswith(f"{asked}-") and language != other)
    return next(exact, None) or next(regional, None)


def _kind(element: Element) -> Kind:
    return _KINDS.get(element.name, "alone")
