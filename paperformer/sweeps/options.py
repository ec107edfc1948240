"""How a sweep is written: in a file, on a command line, or as keywords in Python."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ActionConfigFile

from ..training.console.input_error import InputError
from ..training.console.suggestions import suggest
from ..training.recipe.command_line import CommandLine
from ..training.recipe.recipe_file import SHIPPED_RECIPES, RecipeFile

_OF_ANY_VALUE = {"base", "overrides", "rows", "grid"}


@dataclass(kw_only=True)
class SweepOptions:
    """A table of runs: what they have in common, in what they differ, and what is compared."""

    base: str | dict[str, Any] | None = None
    """The recipe that every row begins with: a YAML file, or the name of one that ships with the package."""

    model: str | None = None
    """Instead of base, the folder of a finished run. Nothing is trained then: each row scores that model again, and
    changes only fields of evaluation, such as evaluation.num_beams, or data.context_length."""

    overrides: dict[str, Any] = field(default_factory=dict)
    """Fields of the recipe that all rows have other than the base. On the command line: --FIELD VALUE."""

    rows: dict[str, dict[str, Any] | None] | None = None
    """Name of a row -> the fields in which it differs; the first is the baseline, and may differ in none."""

    grid: dict[str, list[Any]] | None = None
    """Instead of rows, the values of one field or several: a row for each combination. On the command line:
    --FIELD '[VALUE,VALUE]'."""

    seeds: list[int] = field(default_factory=lambda: [1])
    """Every row is trained once with each; differences are told from chance by their spread."""

    baseline: str | None = None
    """The row that the others are compared with; by default the first."""

    score: str | None = None
    """The validation score that is compared; by default that by which the recipe chooses its weights
    (evaluation.select_by). Over other vocabularies compare bits_per_byte."""

    score_at: list[int] = field(default_factory=list)
    """Of language models: score each finished one at these context lengths as well."""

    name: str | None = None
    """Name of the sweep, which is also its folder's; by default that of its file, or of the base and the fields."""

    output_dir: str = "runs"
    """The table is written to OUTPUT_DIR/NAME, each run to a folder in it."""

    test: bool = False
    """Show the scores on the test split as well. Choose by the validation scores, and look at these once."""

    check: bool = False
    """Check the recipes of all rows and list them; train nothing."""


def sweep_parser() -> CommandLine:
    """The options of `paperformer sweep`, without the fields of recipes."""
    names = ", ".join(sorted(_shipped()))
    command_line = CommandLine(
        prog="paperformer sweep",
        usage="paperformer sweep NAME|FILE.yaml [options] [--FIELD VALUE ...]\n"
        "       paperformer sweep --config RECIPE --FIELD '[VALUE,VALUE]' [options] [--FIELD VALUE ...]",
        description="Train a table of runs that differ in some fields, one after the other, and compare them by their "
        "validation scores. The same command goes on after an interruption. These ship with the package: "
        f"{names}.",
        epilog="FIELD is any field of the recipe: paperformer train lm --help lists them. Given a value it holds for "
        "all rows; given a list of values, there is a row for each.",
    )
    command_line.parser.add_argument("--config", action=ActionConfigFile, help="The same as base, as train calls it.")
    command_line.add_class(SweepOptions)
    return command_line


def read_options(arguments: Sequence[str]) -> tuple[SweepOptions, dict[str, str]]:
    """Parses the words of a command line.

    Args:
        arguments: the name or the file of a sweep, if any; options; fields of recipes.

    Returns:
        The options, and the fields that were given, by name, as they are written.

    Raises:
        InputError: for a file that cannot be read, an unknown option or a value of a wrong type.
    """
    command_line = sweep_parser()
    words = command_line.join_values([_recipe_as_base(word) for word in arguments])
    own, fields = [], {}
    stray = [word for word in words if not word.startswith("--")]
    for word in (word for word in words if word.startswith("--")):
        name, equals, text = word.removeprefix("--").partition("=")
        if name in command_line.fields:
            own.append(word)
        elif not equals:
            raise InputError(f"--{name} has no value; options are written --FIELD VALUE")
        else:
            fields[name] = text
    if len(stray) > 1:
        raise InputError(f"'{stray[1]}' belongs to no option; one sweep is given at a time, and --FIELD VALUE")
    files = [RecipeFile(find_sweep(stray[0]), command_line.fields)] if stray else []
    parsed = vars(command_line.parse([*(f"--config={file.path}" for file in files), *own], files))
    parsed.pop("config")
    # As they were written: the parser takes the text "no", where any value may be, for false.
    exact = {name: given.value for file in files for name, given in file.given.items()}
    exact |= {name: yaml.safe_load(text) for name, _, text in (word[2:].partition("=") for word in own)}
    if files and "overrides" in files[0].given:
        exact["overrides"] = {**files[0].given["overrides"].value, **exact["overrides"]}
    options = SweepOptions(**parsed | {name: exact[name] for name in _OF_ANY_VALUE & exact.keys()})
    if files and options.name is None:
        options.name = files[0].path.stem
    return options, fields


def find_sweep(name: str) -> Path:
    """A sweep's file, or the one that ships with the package under a name.

    Raises:
        InputError: if there is neither.
    """
    if Path(name).is_file():
        return Path(name)
    shipped = _shipped()
    if name not in shipped:
        hint = suggest(name, shipped, f"there are {', '.join(sorted(shipped))}")
        raise InputError(f"there is no file {name}, and no sweep of that name; {hint}")
    return shipped[name]


def _shipped() -> dict[str, Path]:
    return {path.stem: path for path in (SHIPPED_RECIPES / "sweeps").glob("*.yaml")}


def listed(text: str) -> list[Any] | None:
    """The items of a value that is written as a list, as texts where they are no lists or mappings; else None."""
    try:
        items, texts = yaml.safe_load(text), yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        return None
    if not isinstance(items, list):
        return None
    return [item if isinstance(item, list | dict) else word for item, word in zip(items, texts, strict=True)]


def _recipe_as_base(word: str) -> str:
    """`--config` as `train` has it."""
    name, equals, value = word.partition("=")
    return f"--base{equals}{value}" if name == "--config" else word
