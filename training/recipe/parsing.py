"""How a recipe is read: from YAML files, overridden on the command line."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from jsonargparse import ActionConfigFile
from transformers import PreTrainedConfig

from ..console.input_error import InputError
from .checks import build
from .command_line import CommandLine
from .recipe import NOT_CHOSEN, DataOptions, Recipe, list_sections
from .recipe_file import SHIPPED_RECIPES, RecipeFile
from .run import RunOptions


class Completion(NamedTuple):
    """What a command line without a recipe is completed by."""

    recipe: Path | None = None
    """A recipe to take: that of the run that is resumed."""

    defaults: Mapping[str, Any] = {}
    """Field -> value, for what was not given."""


def recipe_parser(config_class: type[PreTrainedConfig], data_class: type, **options: Any) -> CommandLine:
    """A parser of recipes for one family: `--config FILE.yaml`, and an option with its documentation for every field.

    Args:
        config_class: whose fields are the section `model`.
        data_class: whose fields are the section `data`.
        options: of the parser, for example `prog`.
    """
    make: Any = _make_parser  # mypy takes classes that are arguments for not hashable
    parser: CommandLine = make(config_class, data_class, **options)
    return parser


@cache  # it takes half a second, and parsing does not change what is made
def _make_parser(config_class: type[PreTrainedConfig], data_class: type, **options: Any) -> CommandLine:
    command_line = CommandLine(**options)
    command_line.parser.add_argument(
        "--config",
        action=ActionConfigFile,
        help="A recipe: a YAML file, or the name of one that ships with the package (see training/recipes).",
    )
    command_line.add_class(RunOptions)
    for section, options_class in list_sections(config_class, data_class).items():
        command_line.add_class(options_class, section, skip=NOT_CHOSEN if section == "model" else set())
    return command_line


def parse_recipe(
    arguments: list[str],
    config_class: type[PreTrainedConfig],
    data_class: type[DataOptions],
    choices: Mapping[str, Sequence[str]] | None = None,
    defaults: Mapping[str, Any] | None = None,
    complete: Callable[[dict[str, str]], Completion] | None = None,
    more_defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    **options: Any,
) -> Recipe[DataOptions]:
    """Parses a command line into a recipe.

    Args:
        arguments: the command line, without the program's name.
        config_class, data_class, options: as `recipe_parser` takes them.
        choices: field -> the values that it may have, where its section does not know them.
        defaults: field -> the value that it has if none is given, where that is not its section's.
        complete: called with the fields that are given, as they are written, where no recipe is.
        more_defaults: called with the fields that are given, on the command line or in a recipe; what it says goes
            before other defaults, if nothing is given.

    Raises:
        InputError: for a recipe file that cannot be read, an unknown field, a wrong type or value, or options of the
            model that contradict each other.
    """
    given_words = arguments
    command_line = recipe_parser(config_class, data_class, **options)
    for name, values in (choices or {}).items():
        command_line.restrict(name, values)
    words = command_line.join_values(arguments)
    is_help = not {"-h", "--help", "--print_config"}.isdisjoint(words)
    options_given = [word.removeprefix("--").split("=", 1) for word in words if word.startswith("--") and "=" in word]
    given = {name: text for name, text in options_given if name in {"config", *command_line.fields}}
    if complete is not None and "config" not in given and not is_help and command_line.knows_all(words):
        completion = complete(given)
        if completion.recipe is not None:
            words.insert(0, f"--config={completion.recipe}")
        defaults = {**(defaults or {}), **completion.defaults}
    arguments, files = _open_recipes(words, command_line.fields)
    if more_defaults is not None:
        in_files = {name: value.value for file in files for name, value in file.given.items()}
        defaults = {**(defaults or {}), **more_defaults(in_files | given)}
    # Before all else, so that a recipe and what is given on the command line replace them.
    first = [f"--{name}={_written(value)}" for name, value in (defaults or {}).items() if name in command_line.fields]
    arguments = [*first, *arguments]
    parsed = command_line.parse(arguments, files)
    parts: dict[str, Any] = {
        name: build(options_class, vars(parsed[name]), f"{name}.")
        for name, options_class in list_sections(config_class, data_class).items()
    }
    parts.pop("model")  # which has checked itself
    recipe = Recipe(
        run=build(RunOptions, {field.name: parsed[field.name] for field in fields(RunOptions)}),
        model=vars(parsed.model),
        yaml=_dump(parsed.as_dict()),
        arguments=list(given_words),
        **parts,
    )
    recipe.data.check_agreement(recipe)
    return recipe


def find_recipe(name: str) -> Path:
    """A recipe's file, or the one that ships with the package under a name.

    Raises:
        InputError: if there is neither.
    """
    shipped = {path.stem: path for path in SHIPPED_RECIPES.glob("*.yaml")}
    # A folder of a shipped recipe's name holds the recipe's data, or its runs.
    path = Path(name) if Path(name).is_file() else shipped.get(name, Path(name))
    if not path.exists():
        names = ", ".join(sorted(shipped))
        raise InputError(f"--config: there is no file {name}, and no recipe of that name; there are {names}")
    return path


def _open_recipes(arguments: Sequence[str], known: Mapping[str, Any]) -> tuple[list[str], list[RecipeFile]]:
    """Reads and checks the files of `--config`, and puts in the paths of recipes that ship with the package."""
    resolved, files = list(arguments), []
    for index, argument in enumerate(arguments):
        option, equals, name = argument.partition("=")
        if option == "--config" and equals:
            path = find_recipe(name)
            files.append(RecipeFile(path, known))
            resolved[index] = f"--config={path}"
    return resolved, files


def _written(value: Any) -> str:
    """A value as a command line has it."""
    return value if isinstance(value, str) else json.dumps(value)


def _dump(options: dict[str, Any]) -> str:
    """The recipe without what concerns one call only: whoever runs it again may not want to delete a run again."""
    kept = {name: value for name, value in options.items() if name not in ("config", "resume", "overwrite")}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=120)
