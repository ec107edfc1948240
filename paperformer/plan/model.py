"""The configuration that is planned: a preset's or a model folder's, with some fields set differently."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from ..configuration.configuration_encoder import PaperformerEncoderConfig
from ..configuration.configuration_lm import PaperformerLMConfig
from ..configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ..configuration.configuration_transformer import TransformerConfig
from ..modeling.families import Config
from ..training.console.input_error import InputError
from ..training.console.suggestions import suggest
from ..training.recipe.checks import build
from .options import PlanOptions

FAMILIES: tuple[type[Config], ...] = (PaperformerSeq2SeqConfig, PaperformerLMConfig, PaperformerEncoderConfig)


def find_overridable_fields() -> dict[str, Any]:
    """The fields of the configurations of all families, their names in the papers included, and their types."""
    own = {name: hint for family in FAMILIES for name, hint in _own_fields(family).items()}
    return own | {alias: own[name] for alias, name in TransformerConfig.attribute_map.items()}


def make_configuration(options: PlanOptions, overrides: Mapping[str, Any]) -> Config:
    """The configuration of the preset or the model's folder, with fields set differently.

    Raises:
        InputError: for an unknown preset, a folder without a model, a field that the family has not, or fields that
            contradict each other.
    """
    if options.preset is not None:
        presets = {name: family for family in FAMILIES for name in family.presets}
        if options.preset not in presets:
            hint = suggest(options.preset, presets, f"there are {', '.join(presets)}")
            raise InputError(f"--preset is {options.preset}; {hint}")
        family = presets[options.preset]
        make: Callable[..., Config] = partial(family.from_preset, options.preset)
    elif options.model is not None:
        saved, types = _saved_fields(Path(options.model)), {family.model_type: family for family in FAMILIES}
        model_type = saved.get("model_type")
        if model_type not in types:
            raise InputError(f"--model: {options.model} holds a {model_type}; it must be a {' or a '.join(types)}")
        family = types[model_type]
        make = partial(family, **{name: saved[name] for name in saved.keys() & _own_fields(family)})
    else:
        raise InputError("there is no model to plan; give --preset NAME or --model FOLDER")
    if others := overrides.keys() - _own_fields(family).keys() - TransformerConfig.attribute_map.keys():
        raise InputError(f"there is no option --{min(others)} of a {family.model_type}")
    return build(make, overrides)


def _own_fields(family: type[Config]) -> dict[str, Any]:
    """The fields of a family and their types, without those that all configurations of transformers have."""
    inherited = {field.name for field in fields(PreTrainedConfig)}
    return {field.name: field.type for field in fields(family) if field.name not in inherited}


def _saved_fields(folder: Path) -> dict[str, Any]:
    """What config.json of a model's folder says."""
    path = folder / "config.json"
    try:
        saved = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"--model: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"--model: {path} is not JSON: {error}") from error
    return saved if isinstance(saved, dict) else {}
