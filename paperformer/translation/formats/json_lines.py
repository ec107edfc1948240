"""JSON Lines: the same objects with a field more, or with one replaced; all else is written as it was, to the byte."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from ...training.console.input_error import InputError
from ...training.data.readers.reader import list_names
from ..line_source import decode
from .marked_text import MarkedText, text_of
from .raw_lines import OVERLONG, RawLine, raw_lines
from .records import Record, Written, kept

# Numbers are passed over, and Python refuses to make an integer of more than 4300 digits.
_DECODER = json.JSONDecoder(parse_int=float)
_SPACE = " \t\r"


class _NotTranslatableError(Exception):
    def __init__(self, reason: str, detail: str = ""):
        super().__init__(f"{detail or reason}: not translated")
        self.reason = reason


class _Member(NamedTuple):
    """A name and its value in an object: where the value begins and ends."""

    name: str
    start: int
    end: int


def read_json_lines(read: Callable[[int], bytes], name: str, field: str, target: str) -> Iterator[Record]:
    """The lines of a file, of which each is an object with a text in one of its fields.

    Args:
        read: gives its bytes.
        name: of the file, for messages.
        field: where the text is; `translation.en` is the field `en` of the object `translation`, unless the object has
            that very name.
        target: where the translation goes, likewise; objects on the way to it are made.

    Raises:
        InputError: if it is one JSON list, or no field is given.
    """
    lines = raw_lines(read, name)
    first = next(lines, None)
    if first is None:
        return
    if first.content.lstrip().startswith(b"["):
        raise InputError(
            f"{name} is a JSON list; it must be JSON Lines, with one object a line and nothing around them"
        )
    if not field:
        try:
            names = [member.name for member in _members(first.content.decode("utf-8", "ignore"), 0)]
        except (ValueError, RecursionError, _NotTranslatableError):
            names = []
        raise InputError(
            f"{name}: which field is to be translated? Give --field NAME; the first object has {list_names(names)}"
        )
    for line in chain([first], lines):
        yield _record(line, field, target)


def _record(line: RawLine, field: str, target: str) -> Record:
    if line.is_part or not line.content.strip():
        return kept(line.raw, line.number, left="" if line.is_part else "empty")
    if line.is_overlong:
        return kept(line.raw, line.number, left="too long", faults=[OVERLONG])
    try:
        text = line.content.decode("utf-8")
        source = _text_at(text, field)
        _replaced(text, target, "")  # which may be impossible
    except UnicodeDecodeError:
        faults: list[str] = []
        decode(line.content, faults)
        return kept(
            line.raw,
            line.number,
            left="not UTF-8",
            faults=[fault.replace("left out", "found") + ": not translated" for fault in faults],
        )
    except _NotTranslatableError as error:
        return kept(line.raw, line.number, left=error.reason, faults=[str(error)])
    except json.JSONDecodeError as error:
        fault = f"column {error.colno} is not JSON ({error.msg}): not translated"
        return kept(line.raw, line.number, left="not JSON", faults=[fault])
    except RecursionError:
        fault = "its lists or objects are nested too deeply: not translated"
        return kept(line.raw, line.number, left="not JSON", faults=[fault])
    marked = MarkedText([source])

    def write(translations: Sequence[str]) -> Written:
        tokens = marked.fill(translations)
        content = line.mark + _replaced(text, target, text_of(tokens)).encode() + line.end
        return Written(content, marked.review(tokens))

    left = "" if marked.texts else "empty"
    return Record(line.number, len(line.content), write, marked.texts, marked.faults, left)


def _members(text: str, start: int) -> Iterator[_Member]:
    """The members of the object that begins at a place of a text."""
    place = _pass_space(text, start)
    if text[place : place + 1] != "{":
        raise _NotTranslatableError("not an object")
    place = _pass_space(text, place + 1)
    if text[place : place + 1] == "}":
        return
    while True:
        name, place = _DECODER.raw_decode(text, place)
        if not isinstance(name, str):
            raise json.JSONDecodeError("a name must be a string", text, place)
        place = _pass_space(text, _expect(text, place, ":"))
        _, end = _DECODER.raw_decode(text, place)
        yield _Member(name, place, end)
        place = _pass_space(text, end)
        if text[place : place + 1] == "}":
            return
        place = _pass_space(text, _expect(text, place, ","))


def _pass_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place


def _expect(text: str, place: int, sign: str) -> int:
    place = _pass_space(text, place)
    if text[place : place + 1] != sign:
        raise json.JSONDecodeError(f"'{sign}' expected", text, place)
    return place + 1


def _find(text: str, start: int, path: str) -> tuple[_Member | None, int, str]:
    """A member by its path; else the object where it is missing, and what of the path is missing there.

    Of a name that an object has twice, the last counts, as in every reader of JSON.
    """
    members = {member.name: member for member in _members(text, start)}
    if path in members:
        return members[path], start, ""
    name, dot, rest = path.partition(".")
    if dot and name in members:
        return _find(text, members[name].start, rest)
    return None, start, path


def _text_at(text: str, field: str) -> str:
    _DECODER.decode(text)  # all of it, or something behind the object would be overlooked
    member, start, missing = _find(text, 0, field)
    if member is None:
        names = list_names(member.name for member in _members(text, start))
        raise _NotTranslatableError("without the field", f"there is no '{missing}' among {names}")
    value, _ = _DECODER.raw_decode(text, member.start)
    if not isinstance(value, str):
        raise _NotTranslatableError(
            "not a string", f"'{field}' is {text[member.start : member.end][:40]}, not a string"
        )
    return value


def _replaced(text: str, target: str, translation: str) -> str:
    """The line with the translation in its place, written in the manner of its other members."""
    is_ascii = "\\u" in text and text.isascii()  # so on purpose
    member, start, missing = _find(text, 0, target)
    if member is not None:
        return text[: member.start] + json.dumps(translation, ensure_ascii=is_ascii) + text[member.end :]
    *outer, name = missing.split(".")
    colon = ": " if '": ' in text else ":"
    comma = ", " if colon == ": " else ","
    value = json.dumps(translation, ensure_ascii=is_ascii)
    for inner in (name, *reversed(outer)):
        written = f"{json.dumps(inner, ensure_ascii=is_ascii)}{colon}{value}"
        value = f"{{{written}}}"
    members = list(_members(text, start))
    place = members[-1].end if members else _pass_space(text, start) + 1
    return text[:place] + (comma if members else "") + written + text[place:]
