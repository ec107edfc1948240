"""What is wrong with a recipe, said in terms of its file: the line, the field, and what would be right.

The parser itself knows neither lines nor which name was meant. So a file's fields are checked before it is parsed, and
what the parser complains about afterwards is put into words here.
"""

import re
import types
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml

from .input_error import InputError

Fields = Mapping[str, Any]
"""The fields of a recipe, such as `data.max_length`, and their types."""

_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "null"}


class RecipeFile:
    """A recipe's file, checked for everything but its values.

    Args:
        path: a YAML file.
        fields: the fields that it may have.

    Raises:
        InputError: if it cannot be read, is not UTF-8, is not YAML, or has a field that does not exist.
    """

    def __init__(self, path: Path, fields: Fields):
        self.path, self.fields = path, fields
        self.lines: dict[str, int] = {}
        """Field -> the line on which it is given, counted from 1."""
        for name, line, value in self._entries(self._parse(), prefix=""):
            if any(field.startswith(f"{name}.") for field in fields):  # a section
                self.lines |= {field: line for field, line, _ in self._entries(value, prefix=f"{name}.")}
            else:
                self.lines[name] = line

    def _parse(self) -> yaml.Node | None:
        if self.path.is_dir():
            raise InputError(f"{self.path} is a folder; a recipe is a YAML file")
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}") from error
        try:
            return yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise InputError(
                f"{self.path}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8; convert the file to UTF-8"
            ) from error
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise InputError(f"{self.path}, line {line}: this is not YAML: {error.problem}") from error
        except yaml.YAMLError as error:
            raise InputError(f"{self.path} is not YAML: {error}") from error

    def _entries(self, node: yaml.Node | None, prefix: str) -> Iterable[tuple[str, int, yaml.Node]]:
        """Field, line and content of each entry of a mapping."""
        if not isinstance(node, yaml.MappingNode):
            place = f", line {node.start_mark.line + 1}" if node else ""
            raise InputError(f"{self.path}{place}: {prefix.rstrip('.') or 'a recipe'} must be a mapping, FIELD: VALUE")
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = f"{prefix}{key.value}", key.start_mark.line + 1
            if name in seen:
                raise InputError(f"{self.path}, line {line}: {name} is given again; line {seen[name]} has it already")
            if name not in self.fields and not any(field.startswith(f"{name}.") for field in self.fields):
                raise InputError(f"{self.path}, line {line}: there is no field {name}{_suggestion(name, self.fields)}")
            seen[name] = line
            yield name, line, value


def explain(error: Exception, arguments: list[str], files: list[RecipeFile], fields: Fields) -> InputError:
    """The parser's complaint about a command line, in a user's words.

    Args:
        error: what the parser raised.
        arguments: the command line.
        files: the recipes that it names.
        fields: the fields of a recipe.
    """
    message = " ".join(str(error).split())
    if match := re.search(r"arguments are required: (.*)", message):
        missing = match[1].split(", ")
        recipe = " and ".join(str(file.path) for file in files) or "a command line without --config RECIPE"
        options = " and ".join(f"--{name}" for name in missing)
        return InputError(f"{recipe} lacks {' and '.join(missing)}; write it in the recipe, or give {options}")
    if match := re.search(r"unrecognized arguments: (\S+)", message):
        option = match[1].partition("=")[0]
        if not option.startswith("-"):
            return InputError(f"'{option}' belongs to no option; options are written --FIELD VALUE")
        return InputError(f"there is no option {option}{_suggestion(option, [f'--{name}' for name in fields])}")
    match = re.search(r'Parser key "([^"]+)"', message)
    if match is None or match[1] not in fields:
        return InputError(message)
    value = re.search(r"(?:Got|Given) value: (.*)", message)
    return wrong_value(match[1], value[1] if value else "wrong", arguments, files, fields)


def wrong_value(name: str, value: str, arguments: list[str], files: list[RecipeFile], fields: Fields) -> InputError:
    """The error for a value that a field cannot have, with the place where it was given."""
    is_overridden = any(argument.partition("=")[0] == f"--{name}" for argument in arguments)
    place = next((f"{file.path}, line {file.lines[name]}: " for file in reversed(files) if name in file.lines), "")
    return InputError(f"{'--' if is_overridden else place}{name} is {value}; it must be {_describe(fields[name])}")


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else "; --help lists them all"


def _describe(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) is Literal:
        *others, last = map(str, get_args(hint))
        return f"{', '.join(others)} or {last}" if others else last
    if get_origin(hint) in (Union, types.UnionType):
        members = [member for member in get_args(hint) if not (member is int and float in get_args(hint))]
        return " or ".join(map(_describe, members))
    return _TYPE_NAMES.get(hint) or {dict: "a mapping", list: "a list"}.get(get_origin(hint), str(hint))


def spell_out_flags(arguments: list[str], flags: set[str]) -> list[str]:
    """Adds the `true` that jsonargparse wants after a boolean option: `--resume` becomes `--resume true`.

    Args:
        arguments: a command line.
        flags: its boolean options.
    """
    spelled = []
    for index, argument in enumerate(arguments):
        spelled.append(argument)
        if argument in flags and (index + 1 == len(arguments) or arguments[index + 1].startswith("-")):
            spelled.append("true")
    return spelled
