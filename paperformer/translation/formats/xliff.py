"""XLIFF 1.2 and 2.0 to 2.2: the same document, with targets where there were none.

What is filled in says that somebody has to review it: in 1.2 by `state="needs-review-translation"` and
`state-qualifier="leveraged-mt"` (XLIFF 1.2, section 2.3.1), in 2 by `state="translated"`, which is not yet `reviewed`,
and a `subState` of the authority `paperformer` (XLIFF 2.1, section 4.3.1.28).
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from ...training.console.input_error import InputError
from ...training.data.readers.tmx import normal_language
from ...training.data.text.placeholders import Difference
from .marked_text import MarkedText
from .xml_units import (
    Change,
    Element,
    Kind,
    Splice,
    Unit,
    read_tokens,
    with_attributes,
    write_tokens,
)

NOT_TRANSLATED_STATES = ("new", "needs-translation", "initial")
"""Those of a target that may be a copy of its source, put there for a translator to write over."""

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("g", "pc", "mrk"), "span"),
    **dict.fromkeys(("bx", "bpt", "sc", "sm"), "open"),
    **dict.fromkeys(("ex", "ept", "ec", "em"), "close"),
}


class Xliff:
    """What XLIFF says of its documents.

    Args:
        name: of the file, for messages.
        target_language: the code of the language that is translated into; written where the document does not say it.
    """

    def __init__(self, name: str, target_language: str = ""):
        self._name = name
        self._target_language = target_language
        self._is_2 = False

    def enter(self, element: Element, ancestors: Sequence[Element]) -> bool | str:
        """The units of 1.2 are trans-units, those of 2 are units.

        Raises:
            InputError: if it is no XLIFF, or into another language, or in 2 into none.
        """
        if not ancestors:
            version = element.attributes.get("version", "")
            if element.name != "xliff" or version[:2] not in ("1.", "2."):
                raise InputError(
                    f"{self._name} is no XLIFF file of version 1 or 2: it begins with <{element.name}"
                    + (f' version="{version}">' if version else ">")
                )
            self._is_2 = version.startswith("2.")
            self._namespace = element.namespace
        if element.namespace != self._namespace:
            return ""
        if self._is_2:
            return self._say_language(element, "trgLang") if not ancestors else element.name == "unit"
        return (
            self._say_language(element, "target-language") if element.name == "file" else element.name == "trans-unit"
        )

    def _say_language(self, element: Element, attribute: str) -> str:
        said, asked = element.attributes.get(attribute, ""), self._target_language
        if said and asked:
            here, there = normal_language(said).split("-")[0], normal_language(asked).split("-")[0]
            if here != there:
                raise InputError(
                    f'{self._name}, line {element.line}: {attribute}="{said}", and --target_language is {asked}'
                )
        if not said and not asked and self._is_2:
            raise InputError(
                f"{self._name} does not say which language it is translated into (trgLang); say --target_language"
            )
        return f' {attribute}="{escape(asked)}"' if asked and not said else ""

    def change(self, unit: Unit) -> Change:
        """Fills in what has no target."""
        if unit.inherited("translate") == "no":
            return Change(left="locked")
        if self._is_2:
            return self._change_segments(unit)
        if unit.element.attributes.get("approved") == "yes":
            return Change(left="approved")
        return self._change_trans_unit(unit)

    def _change_trans_unit(self, unit: Unit) -> Change:
        element = unit.element
        source, target = element.child("source"), element.child("target")
        segmented = element.child("seg-source")
        state = target.attributes.get("state", "") if target else ""
        if source is None:
            return Change(left="without a source", faults=["a unit without a source"])
        if not _is_open(unit, source, target, state):
            return Change(left="translated already")
        content = segmented or source
        marked = _read(unit, content)
        if not marked.texts:
            return Change(left="without text")

        def apply(translations: Sequence[str]) -> tuple[list[Splice], list[Difference]]:
            tokens = marked.fill(translations)
            differences = marked.review(tokens)
            states = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}
            written = _write_target(unit, content, target, write_tokens(tokens), states)
            space, note = unit.space_before(source), _qualified(unit, source, "note")
            notes = "".join(
                f'{space}{note} from="paperformer" annotates="target">{escape(f"{reason}: {detail}")}</{note[1:]}>'
                for reason, detail in differences
            )
            return [written._replace(content=written.content + notes)], differences

        return Change(marked.texts, apply, marked.faults)

    def _change_segments(self, unit: Unit) -> Change:
        """A unit of version 2 has segments, each with source, target and state."""
        segments = [(segment, segment.child("source")) for segment in unit.element.elements("segment")]
        work = []
        for segment, source in segments:
            state = segment.attributes.get("state", "")
            if source is None or not _is_open(unit, source, segment.child("target"), state):
                continue
            if (marked := _read(unit, source)).texts:
                work.append((segment, source, marked))
        if not work:
            is_done = any(segment.child("target") for segment, _ in segments)
            return Change(left="translated already" if is_done else "without text")

        def apply(translations: Sequence[str]) -> tuple[list[Splice], list[Difference]]:
            rest, splices, found = list(translations), [], []
            for segment, source, marked in work:
                own, rest = rest[: len(marked.texts)], rest[len(marked.texts) :]
                tokens = marked.fill(own)
                differences = marked.review(tokens)
                reason = differences[0].reason if differences else "machine translation"
                states = {"state": "translated", "subState": f"paperformer:{reason.replace(' ', '-')}"}
                splices += [
                    Splice(segment.start, segment.content, with_attributes(unit.tag(segment), states)),
                    _write_target(unit, source, segment.child("target"), write_tokens(tokens), {}),
                ]
                found += differences
            return splices, found

        texts = [text for *_, marked in work for text in marked.texts]
        return Change(texts, apply, [fault for *_, marked in work for fault in marked.faults])


def _is_open(unit: Unit, source: Element, target: Element | None, state: str) -> bool:
    """Whether there is no translation: no target, an empty one, or a copy of the source that says so by its state."""
    if target is None or target.is_empty():
        return state not in ("final", "signed-off")
    is_copy = unit.slice(target.content, target.stop).strip() == unit.slice(source.content, source.stop).strip()
    return is_copy and state in NOT_TRANSLATED_STATES


def _read(unit: Unit, element: Element) -> MarkedText:
    return MarkedText(read_tokens(unit, element, _kind), keeps_lines=unit.keeps_space(element))


def _kind(element: Element) -> Kind:
    """What an inline element is; of a marker that keeps its text from translation, all is one code."""
    if element.attributes.get("mtype") == "protected" or element.attributes.get("translate") == "no":
        return "alone"
    if element.attributes.get("mtype") == "seg":
        return "segment"
    return _KINDS.get(element.name, "alone")


def _write_target(
    unit: Unit, source: Element, target: Element | None, content: str, attributes: dict[str, str]
) -> Splice:
    """A target in place of an empty one, or behind a source."""
    if target is not None:
        tag = unit.tag(target).removesuffix("/>").removesuffix(">").rstrip() + ">"
        start, end = target.start, target.end
    else:
        tag = _qualified(unit, source, "target") + ">"
        start = end = source.end
    closing = f"</{tag[1:].split()[0].rstrip('>')}>"
    before = "" if target is not None else unit.space_before(source)
    return Splice(start, end, before + with_attributes(tag, attributes) + content + closing)


def _qualified(unit: Unit, source: Element, name: str) -> str:
    """The beginning of a tag of another name in the name space of the source, `<xlf:target`."""
    prefix, colon, _ = unit.tag(source)[1:].split(">")[0].split()[0].rstrip("/").rpartition(":")
    return f"<{prefix}{colon}{name}"
