"""How a recipe is read: from YAML files, overridden on the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ActionConfigFile
from transformers import PreTrainedConfig

from ..console.input_error import InputError
from .checks import build
from .command_line import CommandLine
from .recipe import NOT_CHOSEN, DataOptions, Recipe, list_sections
from .recipe_file import RecipeFile
from .run import RunOptions


def recipe_parser(config_class: type[PreTrainedConfig], data_class: type, **options: Any) -> CommandLine:
    """A parser of recipes for one family: `--config FILE.yaml`, and an option with its documentation for every field.

    Args:
        config_class: whose fields are the section `model`.
        data_class: whose fields are the section `data`.
        options: of the parser, for example `prog`.
    """
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
    **options: Any,
) -> Recipe[DataOptions]:
    """Parses a command line into a recipe.

    Args:
        arguments: the command line, without the program's name.
        config_class, data_class, options: as `recipe_parser` takes them.
        choices: field -> the values that it may have, where its section does not know them.

    Raises:
        InputError: for a recipe file that cannot be read, an unknown field, a wrong type or value, or options of the
            model that contradict each other.
    """
    command_line = recipe_parser(config_class, data_class, **options)
    for name, values in (choices or {}).items():
        command_line.restrict(name, values)
    arguments, files = _open_recipes(command_line.join_values(arguments), command_line.fields)
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
        **parts,
    )
    recipe.data.check_agreement(recipe)
    return recipe


def _open_recipes(arguments: Sequence[str], known: Mapping[str, Any]) -> tuple[list[str], list[RecipeFile]]:
    """Reads and checks the files of `--config`, and puts in the paths of recipes that ship with the package."""
    shipped = {path.stem: path for path in (Path(__file__).parents[1] / "recipes").glob("*.yaml")}
    resolved, files = list(arguments), []
    for index, argument in enumerate(arguments):
        option, equals, name = argument.partition("=")
        if option == "--config" and equals:
            path = Path(name) if Path(name).exists() else shipped.get(name)
            if path is None:
                names = ", ".join(sorted(shipped))
                raise InputError(f"--config: there is no file {name}, and no recipe of that name; there are {names}")
            files.append(RecipeFile(path, known))
            resolved[index] = f"--config={path}"
    return resolved, files


def _dump(options: dict[str, Any]) -> str:
    """The recipe without what concerns one call only: whoever runs it again may not want to delete a run again."""
    kept = {name: value for name, value in options.items() if name not in ("config", "resume", "overwrite")}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=120)
