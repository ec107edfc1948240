"""Command lines that are read off signatures: a command's parameters, and the fields of a recipe or of a plan.

jsonargparse makes the options with their documentation, and reads their values. What it refuses is put into words here:
it knows neither the line of a file nor which name was meant.
"""

import inspect
import sys
import types
from argparse import ArgumentError
from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Any, Literal, Union, get_args, get_origin

from docstring_parser import parse as parse_docstring
from jsonargparse import ArgumentParser, Namespace, set_parsing_settings

from ..console.colours import paint_help
from ..console.input_error import InputError
from ..console.suggestions import suggest
from .recipe_file import Given, RecipeFile

set_parsing_settings(docstring_parse_attribute_docstrings=True)

_SEVERAL_WORDS: dict[Any, str] = {list[str]: "+", tuple[str, ...]: "*"}
"""Types of positional parameters that take one word or more, or any number, as argparse writes it."""

_WITHOUT_VALUE = ("--help", "--print_config")
_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "null"}


class _Parser(ArgumentParser):
    """jsonargparse's, with coloured help where argparse has no colours of its own: before Python 3.14."""

    def print_help(self, file: Any = None) -> None:
        if sys.version_info >= (3, 14):
            super().print_help(file)
        else:
            stream = sys.stdout if file is None else file
            stream.write(paint_help(self.format_help(), stream))


class CommandLine:
    """The options of a program, or of one command of it.

    Args:
        options: of the parser, for example `prog`.
    """

    def __init__(self, **options: Any):
        self.parser = _Parser(allow_abbrev=False, exit_on_error=False, **options)
        self.fields: dict[str, Any] = {}
        """All options, by their names without the dashes, and their types."""
        self.required: list[str] = []
        """Of those, the ones without a default."""
        self._restricted: set[str] = set()
        self._words: float = 0  # how many may be given that belong to no option

    def add_class(self, options_class: type, section: str = "", skip: Set[str] = frozenset()) -> None:
        """Adds an option for every field of a dataclass.

        Args:
            options_class: its fields have docstrings.
            section: what stands before the fields' names, and a dot.
            skip: fields that are no options.
        """
        self.parser.add_class_arguments(options_class, section or None, skip=set[str | int](skip))
        for name, parameter in inspect.signature(options_class).parameters.items():
            if name not in skip:
                field = f"{section}.{name}" if section else name
                self.fields[field] = parameter.annotation
                if parameter.default is parameter.empty:
                    self.required.append(field)

    def add_option(self, name: str, hint: Any) -> None:
        """Adds an option without documentation."""
        self.parser.add_argument(f"--{name}", type=hint)
        self.fields[name] = hint

    def restrict(self, name: str, choices: Sequence[str]) -> None:
        """Lets an option have only some values, which the class that it was read off does not know."""
        self.fields[name] = Literal[tuple(choices)]
        self._restricted.add(name)

    def add_function(self, function: Callable[..., None]) -> None:
        """Adds the parameters of a function: options, and words for those that can be given by their place alone.

        The first of these, or the last, may take several words, as a shell makes of *.txt: `list[str]` one at least,
        `tuple[str, ...]` any number.
        """
        parameters = inspect.signature(function).parameters
        several: set[str | int] = {
            name for name, parameter in parameters.items() if parameter.annotation in _SEVERAL_WORDS
        }
        is_first = next(iter(parameters)) in several
        if not is_first:
            self.parser.add_function_arguments(function, as_group=False, as_positional=True, skip=several)
        for text in parse_docstring(function.__doc__ or "").params:
            if (name := text.arg_name) in several:
                number = _SEVERAL_WORDS[parameters[name].annotation]
                self.parser.add_argument(name, nargs=number, type=str, help=text.description)
                self._words = float("inf")
        if is_first:
            self.parser.add_function_arguments(function, as_group=False, as_positional=True, skip=several)
        for name, parameter in parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:  # its annotation is Unpack[a TypedDict]
                self.fields |= get_args(parameter.annotation)[0].__annotations__
            elif parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
                self._words += 1
            else:
                self.fields[name] = parameter.annotation

    def join_values(self, arguments: Sequence[str]) -> list[str]:
        """Makes one word of each option and its value: of `--seed 1` `--seed=1`, and of `--resume` `--resume=true`.

        What belongs to no option comes last.
        """
        options: list[str] = []
        words: list[str] = []
        rest = deque(arguments)
        while rest:
            word = rest.popleft()
            if word == "--":  # what follows are no options
                return [*options, *words, word, *rest]
            if word.startswith("--") and "=" not in word and word not in _WITHOUT_VALUE:
                if rest and rest[0] != "-h" and not rest[0].startswith("--"):
                    word = f"{word}={rest.popleft()}"
                elif self.fields.get(word.removeprefix("--")) is bool:
                    word = f"{word}=true"
            (options if word.startswith("--") else words).append(word)
        return [*options, *words]

    def knows_all(self, words: Sequence[str]) -> bool:
        """Whether there is every option that is given."""
        names = [word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")]
        return all(self._has(name.removesuffix("+")) for name in names)

    def parse(self, arguments: Sequence[str], files: Sequence[RecipeFile] = (), **options: Any) -> Namespace:
        """The values of all options.

        Args:
            arguments: with joined values.
            files: those that the command line names.
            options: as `ArgumentParser.parse_args` takes them.

        Raises:
            InputError: for an unknown option, a value of a wrong type, or one that is missing.
        """
        try:
            parsed = self.parser.parse_args(arguments, **options)
        except (ArgumentError, TypeError, ValueError) as error:
            raise self._explain(error, arguments, files) from error
        for name in self._restricted:
            if parsed[name] not in get_args(self.fields[name]):
                refusal = InputError(f"{name} is {parsed[name]}; it must be {_describe(self.fields[name])}")
                raise self._explain(refusal, arguments, files)
        for name, given in _given_in(files):  # the parser takes null for "not given"
            if parsed[name] is None and type(None) not in get_args(self.fields[name]):
                raise self._wrong_value(name, given)
        return parsed

    def _explain(self, error: Exception, words: Sequence[str], files: Sequence[RecipeFile]) -> InputError:
        """What the parser has refused, in a user's words; in its own where nothing is found."""
        given = _given_in(files)
        for word in (word for word in words if word.startswith("--")):
            name, equals, text = word.removeprefix("--").partition("=")
            field = name.removesuffix("+")  # behind which another item of a list is given
            if not self._has(field):
                hint = suggest(name, self.fields, "--help lists them all", prefix="--")
                return InputError(f"there is no option --{name}; {hint}")
            if not equals and word not in _WITHOUT_VALUE:
                return InputError(f"{word}: expected one argument")
            if field in self.fields:
                given.append((field, Given("--", text, text if field == name else [text])))
        for name, value in given:
            if not _accepts(self.fields[name], value.value):
                return self._wrong_value(name, value)
        stray = [word for word in words if not word.startswith("--")]
        if len(stray) > self._words:
            return InputError(f"'{stray[int(self._words)]}' belongs to no option; options are written --FIELD VALUE")
        if missing := [name for name in self.required if name not in dict(given)]:
            recipe = " and ".join(str(file.path) for file in files) or "a command line without --config RECIPE"
            flags = " and ".join(f"--{name}" for name in missing)
            return InputError(f"{recipe} lacks {' and '.join(missing)}; write it in the recipe, or give {flags}")
        return InputError(" ".join(str(error).split()))

    def _has(self, name: str) -> bool:
        """Whether there is this option, or a section of this name, or an option whose mapping this is an entry of."""
        known = {"help", "config", "print_config", *self.fields}
        return any(f"{field}.".startswith(f"{name}.") or name.startswith(f"{field}.") for field in known)

    def _wrong_value(self, name: str, given: Given) -> InputError:
        return InputError(f"{given.place}{name} is {given.text}; it must be {_describe(self.fields[name])}")


def _given_in(files: Sequence[RecipeFile]) -> list[tuple[str, Given]]:
    return [item for file in files for item in file.given.items()]


def _accepts(hint: Any, value: Any) -> bool:
    """Whether a value can be read as a type."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=hint)
    try:
        parser.parse_object({"value": value})
    except (ArgumentError, TypeError, ValueError):
        return False
    return True


def _describe(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) is Literal:
        *others, last = map(str, get_args(hint))
        return f"{', '.join(others)} or {last}" if others else last
    if get_origin(hint) in (Union, types.UnionType):
        members = [member for member in get_args(hint) if not (member is int and float in get_args(hint))]
        return " or ".join(map(_describe, members))
    return _TYPE_NAMES.get(hint) or {dict: "a mapping", list: "a list"}.get(get_origin(hint), str(hint))
