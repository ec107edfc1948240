"""Recipes: the options of a training run, read from YAML and overridden on the command line.

The sections are the classes of `options`. The `model` section holds the fields of the model's own configuration class
(`PaperformerSeq2SeqConfig` or `PaperformerLMConfig`), which documents them.
"""

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

import yaml
from huggingface_hub.errors import StrictDataclassError
from jsonargparse import ActionConfigFile, ArgumentParser, set_parsing_settings
from transformers import PreTrainedConfig

from .data.cleaning import Cleaning
from .input_error import InputError
from .options.checkpoints import Checkpoints
from .options.data import ParallelData, TextData
from .options.evaluation import EvaluationOptions
from .options.guard import Guard
from .options.optimization import Optimization
from .options.run import RunOptions
from .options.tokenizer import TokenizerOptions
from .recipe_file import Fields, RecipeFile, explain, spell_out_flags, wrong_value

set_parsing_settings(docstring_parse_attribute_docstrings=True)


DataOptions = TypeVar("DataOptions", ParallelData, TextData)


@dataclass(kw_only=True)
class Recipe(Generic[DataOptions]):
    """A training run, whole."""

    run: RunOptions
    data: DataOptions
    cleaning: Cleaning
    tokenizer: TokenizerOptions
    model: dict[str, Any]
    optimization: Optimization
    guard: Guard
    checkpoints: Checkpoints
    evaluation: EvaluationOptions
    yaml: str
    """The recipe as YAML, every field given that makes a difference to the model: what is written into the run's folder
    and its card."""


# Read off the tokenizer, not chosen.
_SET_BY_TOKENIZER = {
    "vocab_size",
    "source_vocab_size",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
}


def recipe_parser(config_class: type[PreTrainedConfig], data_class: type, **options: Any) -> ArgumentParser:
    """A parser of recipes for one family: `--config FILE.yaml`, and an option with its documentation for every field.

    Args:
        config_class: whose fields are the section `model`.
        data_class: whose fields are the section `data`.
        options: of the parser, for example `prog`.
    """
    parser = ArgumentParser(allow_abbrev=False, exit_on_error=False, **options)
    parser.add_argument(
        "--config",
        action=ActionConfigFile,
        help="A recipe: a YAML file, or the name of one that ships with the package (see training/recipes).",
    )
    parser.add_class_arguments(RunOptions)
    for section, options_class in _sections(config_class, data_class).items():
        parser.add_class_arguments(options_class, section, skip=_not_in_recipes() if section == "model" else set())
    return parser


def _sections(config_class: type[PreTrainedConfig], data_class: type) -> dict[str, type]:
    """The sections of a recipe by name, and the classes of their fields."""
    return {
        "data": data_class,
        "cleaning": Cleaning,
        "tokenizer": TokenizerOptions,
        "model": config_class,
        "optimization": Optimization,
        "guard": Guard,
        "checkpoints": Checkpoints,
        "evaluation": EvaluationOptions,
    }


def recipe_fields(config_class: type[PreTrainedConfig], data_class: type) -> Fields:
    """All fields of a family's recipes, by the names they have on the command line, and their types."""
    sections: dict[str, Any] = {"": RunOptions}
    sections |= {f"{name}.": options_class for name, options_class in _sections(config_class, data_class).items()}
    skipped = {f"model.{name}" for name in _not_in_recipes()}
    return {
        f"{prefix}{field.name}": field.type
        for prefix, options_class in sections.items()
        for field in fields(options_class)
        if f"{prefix}{field.name}" not in skipped
    }


def _not_in_recipes() -> set[str]:
    """Fields of a model's configuration that are inherited from transformers or read off the tokenizer."""
    return {field.name for field in fields(PreTrainedConfig)} | {"kwargs"} | _SET_BY_TOKENIZER


def parse_recipe(
    arguments: list[str], config_class: type[PreTrainedConfig], data_class: type[DataOptions], **options: Any
) -> Recipe[DataOptions]:
    """Parses a command line into a recipe.

    Args:
        arguments: the command line, without the program's name.
        config_class, data_class, options: as `recipe_parser` takes them.

    Raises:
        InputError: for a recipe file that cannot be read, an unknown field, a wrong type or value, or options of the
            model that contradict each other.
    """
    parser = recipe_parser(config_class, data_class, **options)
    known = recipe_fields(config_class, data_class)
    flags = {f"--{name}" for name, hint in known.items() if hint is bool}
    arguments, files = _open_recipes(spell_out_flags(arguments, flags), known)
    try:
        parsed = parser.parse_args(arguments)
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise explain(error, arguments, files, known) from error
    for name, hint in known.items():
        if parsed[name] is None and type(None) not in get_args(hint):  # the parser takes null for "not given"
            raise wrong_value(name, "null", arguments, files, known)
    sections: dict[str, Any] = {
        name: _build(options_class, vars(parsed[name]), f"{name}.")
        for name, options_class in _sections(config_class, data_class).items()
        if name != "model"
    }
    recipe = Recipe(
        run=_build(RunOptions, {field.name: parsed[field.name] for field in fields(RunOptions)}),
        model=vars(parsed.model),
        yaml=_dump(parsed.as_dict()),
        **sections,
    )
    _check_agreement(recipe, _build(config_class, recipe.model, "model."))
    return recipe


def _dump(options: dict[str, Any]) -> str:
    """The recipe without what concerns one call only: whoever runs it again may not want to delete a run again."""
    kept = {name: value for name, value in options.items() if name not in ("config", "resume", "overwrite")}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=120)


Options = TypeVar("Options")


def _build(options_class: type[Options], values: dict[str, Any], section: str = "") -> Options:
    """Makes one section's object, which checks itself; a complaint begins with the field's name."""
    try:
        return options_class(**values)
    except StrictDataclassError as error:  # wraps what a configuration's own check has raised
        reason = str(error.__cause__ or error).splitlines()[-1].strip()
        raise InputError(f"{section}{reason}") from error
    except ValueError as error:
        raise InputError(f"{section}{error}") from error


def _check_agreement(recipe: Recipe[Any], config: PreTrainedConfig) -> None:
    """Checks what no section can see by itself."""
    data = recipe.data
    name, length = (
        ("max_length", data.max_length) if isinstance(data, ParallelData) else ("context_length", data.context_length)
    )
    if length > config.max_position_embeddings:
        raise InputError(
            f"data.{name} is {length}; it must be at most model.max_position_embeddings "
            f"({config.max_position_embeddings})"
        )
    if isinstance(data, TextData):
        _check_language_model(recipe)
    elif recipe.tokenizer.separate and recipe.model["share_embeddings"]:
        raise InputError("tokenizer.separate is true; model.share_embeddings must be false with it")


def _check_language_model(recipe: Recipe[TextData]) -> None:
    if recipe.optimization.tokens_per_batch < recipe.data.context_length:
        raise InputError(
            f"optimization.tokens_per_batch is {recipe.optimization.tokens_per_batch}; it must be at least "
            f"data.context_length ({recipe.data.context_length})"
        )
    if recipe.evaluation.select_by != "loss":
        raise InputError(
            f"evaluation.select_by is '{recipe.evaluation.select_by}'; a language model is chosen by its 'loss'"
        )
    if recipe.tokenizer.separate:
        raise InputError("tokenizer.separate is true; a language model has one vocabulary")
    for name in ("bpe_dropout", "unigram_alpha"):
        value = getattr(recipe.tokenizer, name)
        if value > 0:
            raise InputError(f"tokenizer.{name} is {value}; it is for translation, and must be 0")


def _open_recipes(arguments: list[str], known: Fields) -> tuple[list[str], list[RecipeFile]]:
    """Reads and checks the files of `--config`, and puts in the paths of recipes that ship with the package."""
    shipped = {path.stem: path for path in (Path(__file__).parent / "recipes").glob("*.yaml")}
    resolved, files = list(arguments), []
    for index, argument in enumerate(arguments):
        option, equals, name = argument.partition("=")
        if option != "--config" or (not equals and index + 1 == len(arguments)):
            continue
        name = name if equals else arguments[index + 1]
        path = Path(name)
        if not path.exists():
            if name not in shipped:
                names = ", ".join(sorted(shipped))
                raise InputError(f"--config: there is no file {name}, and no recipe of that name; there are {names}")
            path = shipped[name]
        files.append(RecipeFile(path, known))
        if equals:
            resolved[index] = f"--config={path}"
        else:
            resolved[index + 1] = str(path)
    return resolved, files
