"""A model to begin with: the weights, the configuration and the tokenizer of another one, trained further."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, StrictDataclassError
from safetensors import SafetensorError
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

from ...modeling.families import Config, Family
from ..console.input_error import InputError
from ..data.tokenizers import TARGET_FOLDER, TokenizerNeeds, Tokenizers, check_tokenizers, load_tokenizers
from ..exact_weights import hash_weights, load_exactly
from ..recipe.changes import SAME_WEIGHTS
from ..recipe.recipe import NOT_CHOSEN, Recipe
from ..run_folder import RunFolder

CONVERTIBLE = ("marian", "gpt2", "llama", "bert")
"""Types of models that `paperformer convert --from` takes."""

CLIENT_ERROR: type[Exception] = HfHubHTTPError.__mro__[1]
"""What the HTTP client raises where there is no answer."""

FILES = ["*.json", "*.safetensors", "*.model", "*.txt", f"{TARGET_FOLDER}/*"]
"""Of a repository on the Hub, what is read."""


@dataclass(frozen=True)
class BaseModel:
    """A model's folder, whose weights a run begins with."""

    given: str
    """What it was named by: a run's folder, a model's folder, or a name on the Hub."""

    folder: Path

    @property
    def name(self) -> str:
        """What a card calls it: the name of its run, of its folder, or on the Hub."""
        if not Path(self.given).is_dir():
            return self.given
        path = self.folder.resolve()
        return path.parent.name if path.name == "model" else path.name

    @cached_property
    def sha256(self) -> str:
        """Of its weights."""
        return hash_weights(self.folder)

    def config(self, family: Family) -> Config:
        """Its configuration.

        Raises:
            InputError: if it is of another family, or cannot be read.
        """
        path = self.folder / "config.json"
        try:
            kind = json.loads(path.read_text("utf-8")).get("model_type")
            if kind != family.config.model_type:
                convert = f"; convert it first: paperformer convert {self.given} FOLDER --from {kind}"
                raise InputError(
                    f"init_from: {self.given} holds a {kind}, and this needs a {family.config.model_type}"
                    f"{convert if kind in CONVERTIBLE else ''}"
                )
            return family.config.from_pretrained(self.folder)
        except (OSError, StrictDataclassError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise InputError(f"init_from: {path} cannot be read: {str(error).splitlines()[0]}") from error

    def record(self) -> dict[str, str]:
        """What a run and its card say of it."""
        return {"name": self.name, "sha256": self.sha256}


def find_base(given: str) -> BaseModel:
    """The model that `init_from` names.

    Raises:
        InputError: if there is none.
    """
    path = Path(given).expanduser()
    if path.is_dir():
        for folder in (path, path / "model"):
            if _is_model(folder):
                return BaseModel(given, folder)
        raise InputError(f"init_from: {given} is no finished run and no model's folder: no config.json with weights")
    if given.startswith((".", "/", "~")) or given.count("/") > 1 or path.is_file():
        raise InputError(f"init_from: there is no folder {given}")
    try:
        folder = Path(snapshot_download(given, allow_patterns=FILES))
    except (HFValidationError, HfHubHTTPError, OSError) as error:
        raise InputError(
            f"init_from: there is no folder {given}, nor could it be had from the Hub: {_reason(error)}"
        ) from error
    except CLIENT_ERROR as error:
        raise InputError(
            f"init_from: the connection broke while {given} was fetched from the Hub ({_reason(error)}); the same "
            "command goes on where it was"
        ) from error
    if not _is_model(folder):
        raise InputError(f"init_from: {given} on the Hub is no model: no config.json with weights (.safetensors)")
    return BaseModel(given, folder)


def _reason(error: Exception) -> str:
    """The first line of an error's message, or its name."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def defaults_of_base(given: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Fields of a recipe as the model has them that it begins with; none for a recipe without `init_from`.

    A resumed run has them of its own configuration: what it began with may be gone.

    Args:
        given: the recipe's fields that are given, as far as they are.
        family: of the model.

    Raises:
        InputError: if the model is of another family, or cannot be read.
    """
    if not given.get("init_from"):
        return {}
    run = Path(str(given.get("output_dir", "runs"))) / str(given.get("name", ""))
    is_resumed = given.get("resume") in (True, "true") and (run / "config.json").is_file()
    base = BaseModel(str(run), run) if is_resumed else find_base(str(given["init_from"]))
    config, chosen = base.config(family), find_chosen_fields(family)
    tokenizer = base.folder / "tokenizer" if is_resumed else base.folder
    return {f"model.{name}": getattr(config, name) for name in chosen} | {
        "tokenizer.separate": (tokenizer / TARGET_FOLDER).is_dir()
    }


def check_overrides(recipe: Recipe[Any], defaults: Mapping[str, Any]) -> None:
    """Raises InputError if a recipe asks for a model that its base is not.

    Args:
        defaults: what `defaults_of_base` says.
    """
    for field, value in defaults.items():
        section, _, name = field.partition(".")
        if section == "model" and field not in SAME_WEIGHTS and recipe.model[name] != value:
            raise InputError(
                f"{field} is {recipe.model[name]}, and that of {recipe.run.init_from} is {value}; leave it out, or "
                "train from scratch without init_from"
            )
    if defaults and recipe.tokenizer.path is not None:
        raise InputError(f"tokenizer.path is {recipe.tokenizer.path}; with init_from the tokenizer is the model's")


def base_tokenizers(recipe: Recipe[Any], needs: TokenizerNeeds, family: Family) -> Tokenizers:
    """The tokenizers of the model that a recipe begins with.

    Where one has no token for the beginning or the end of a text, or for padding, another of its tokens serves.

    Raises:
        InputError: if they lack what the objective needs, or have more entries than the model.
    """
    base = find_base(recipe.run.init_from or "")
    config = base.config(family)
    try:
        tokenizers = load_tokenizers(base.folder)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"init_from: {base.given} has no tokenizer: {str(error).splitlines()[0]}") from error
    for tokenizer in tokenizers:
        _complete_marks(tokenizer, config)
    check_tokenizers(tokenizers, recipe.tokenizer, needs, place=f"init_from: the tokenizer of {base.given}")
    sizes = [getattr(config, "source_vocab_size", None) or config.vocab_size, config.vocab_size]
    for tokenizer, size in zip(tokenizers, sizes, strict=True):
        if len(tokenizer) > size:
            raise InputError(
                f"init_from: the tokenizer of {base.given} has {len(tokenizer):,} entries, and its model {size:,}; "
                "they do not belong together"
            )
    return tokenizers


def _complete_marks(tokenizer: PreTrainedTokenizerFast, config: Config) -> None:
    """BERT's are [CLS] and [SEP]; Marian's decoder begins with its padding; GPT-2 and Llama have none."""
    if tokenizer.eos_token is None:
        tokenizer.eos_token = tokenizer.sep_token
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.bos_token is None:
        start = getattr(config, "decoder_start_token_id", None)
        start_token = tokenizer.convert_ids_to_tokens(start) if start is not None and start < len(tokenizer) else None
        tokenizer.bos_token = tokenizer.cls_token or start_token


def initial_model(recipe: Recipe[Any], family: Family, fresh_config: Callable[[], Config]) -> Any:
    """The model that a run begins with: with fresh weights, or with those of another one.

    Raises:
        InputError: if those are not exactly what their configuration says.
    """
    make: Any = family.head
    if recipe.run.init_from is None:
        return make(fresh_config())
    changes = {field.partition(".")[2] for field in SAME_WEIGHTS if field.startswith("model.")}
    run = RunFolder(recipe.run)
    is_begun = recipe.run.resume and bool(run.checkpoints())  # its weights are read from there, later
    base = BaseModel(str(run.path), run.path) if is_begun else find_base(recipe.run.init_from)
    config = base.config(family)
    for name in changes & vars(config).keys():
        setattr(config, name, recipe.model[name])
    if is_begun:
        return make(config)
    options: dict[str, Any] = {"called": base.given, "config": config, "dtype": torch.float32}
    try:
        return load_exactly(make.from_pretrained, str(base.folder), **options).model
    except (OSError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"init_from: the weights of {base.given} cannot be read: {reason}") from error


def set_generation(model: PreTrainedModel, recipe: Recipe[Any], **settings: Any) -> None:
    """Sets how a model generates: as said, and as the model does that it begins with, where that says more."""
    marks = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    tokens = {name: getattr(model.config, name) for name in marks if hasattr(model.config, name)}
    untyped: Any = model
    if recipe.run.init_from is None:
        untyped.generation_config = GenerationConfig(**tokens, **settings)
    else:
        untyped.generation_config.update(**tokens, **settings)


def find_chosen_fields(family: Family) -> set[str]:
    """Fields of a configuration that recipes choose."""
    return {field.name for field in fields(family.config)} - NOT_CHOSEN
