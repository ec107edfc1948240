"""A recipe's file: which fields it gives, and on which lines."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..console.input_error import InputError
from ..console.suggestions import suggest

SHIPPED_RECIPES = Path(__file__).parents[1] / "recipes"
"""The folder of those that are in the package; that of sweeps is in it."""


class Given(NamedTuple):
    """A value that was given for a field."""

    place: str
    """What stands before the field's name in messages: the file and the line, or the dashes of the command line."""

    text: str
    """The value as it was written."""

    value: Any
    """The same, read as YAML if it stands in a file."""


class RecipeFile:
    """A recipe's file, checked for everything but its values.

    Args:
        path: a YAML file.
        fields: the fields that it may have, such as `data.max_length`, and their types.

    Raises:
        InputError: if it cannot be read, is not UTF-8, is not YAML, or has a field that does not exist.
    """

    def __init__(self, path: Path, fields: Mapping[str, Any]):
        self.path, self.fields = path, fields
        self.given: dict[str, Given] = {}
        text, root = read_yaml(path)
        for name, line, node in self._entries(root, prefix=""):
            is_section = any(field.startswith(f"{name}.") for field in fields)
            for field, place, content in self._entries(node, f"{name}.") if is_section else [(name, line, node)]:
                written = text[content.start_mark.index : content.end_mark.index].strip()
                value = yaml.safe_load(yaml.serialize(content))
                self.given[field] = Given(f"{path}, line {place}: ", written or "null", value)

    def _entries(self, node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, int, yaml.Node]]:
        """Field, line (counted from 1) and content of each entry of a mapping."""
        if not isinstance(node, yaml.MappingNode):
            place = f", line {node.start_mark.line + 1}" if node else ""
            raise InputError(f"{self.path}{place}: {prefix.rstrip('.') or 'a recipe'} must be a mapping, FIELD: VALUE")
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = f"{prefix}{key.value}", key.start_mark.line + 1
            if name in lines:
                raise InputError(f"{self.path}, line {line}: {name} is given again; line {lines[name]} has it already")
            if not any(field == name or field.startswith(f"{name}.") for field in self.fields):
                hint = suggest(name, self.fields, "--help lists them all")
                raise InputError(f"{self.path}, line {line}: there is no field {name}; {hint}")
            lines[name] = line
            yield name, line, value


def read_yaml(path: Path) -> tuple[str, yaml.Node | None]:
    """A file's text, and its root in YAML.

    Raises:
        InputError: if it cannot be read, is not UTF-8, or is not YAML.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; a recipe is a YAML file")
    try:
        text = path.read_bytes().decode("utf-8")
        return text, yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise InputError(f"{path}, line {line}: byte 0x{byte:02x} is not UTF-8; convert the file to UTF-8") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}, line {line}: this is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {error}") from error
