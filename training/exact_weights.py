"""Weights into models: exactly those that a model has, or an error.

transformers initialises a tensor that is missing at random, drops one that it does not know, and says so in a log. What
such a model writes is nonsense that looks like a result.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ..modeling.families import FAMILIES
from .console.input_error import InputError

SHOWN = 3
"""How many names an error gives of each kind."""


class Loaded(NamedTuple):
    """A model that has got its weights."""

    model: PreTrainedModel

    left_out: list[str]
    """Tensors beside them that belong to other heads, of an architecture that is not ours."""


def load_exactly(
    load: Callable[..., Any],
    source: str | None,
    *,
    called: str | None = None,
    optional: Collection[str] = (),
    allow_pickle: bool = False,
    **options: Any,
) -> Loaded:
    """A model by transformers, if its weights are those that its configuration says, and all of them are finite.

    Args:
        load: `from_pretrained` of a model's class, or of an Auto* class.
        source: what it loads, a folder or a name on the Hub.
        called: what errors call it, if not `source`.
        optional: tensors that may be missing, because they have no effect.
        allow_pickle: whether weights that are not safetensors but pickled (`pytorch_model.bin`) may be read.
        options: those of `from_pretrained`.

    Raises:
        InputError: if there are only pickled weights, and they may not be read; if tensors are missing, unknown, of
            another shape, or not finite. Of architectures that are not ours, tensors of other heads may lie beside
            those of the model.
    """
    options |= {"use_safetensors": None if allow_pickle else True}
    if source is not None:
        check_shards(Path(source))
    try:
        model, report = load(source, output_loading_info=True, ignore_mismatched_sizes=True, **options)
    except UnpicklingError as error:  # which torch raises instead of running anything
        raise InputError(
            f"{called or source}: its pickled weights hold other things than tensors, and are not loaded"
        ) from error
    except OSError as error:
        # What transformers says of it is to do without `use_safetensors`, or nothing.
        has_pickle = "use_safetensors" in str(error) or (source is not None and any(Path(source).glob("*.bin")))
        if allow_pickle or not has_pickle:
            raise
        raise InputError(
            f"{called or source} has no weights in safetensors; pickled ones (pytorch_model.bin) can hold code, and "
            "are read only with --trust_remote_code, or by paperformer convert with --allow_pickle"
        ) from error
    place = called or source or model.name_or_path
    unknown = {*report["unexpected_keys"]}
    if model.config.model_type not in {family.config.model_type for family in FAMILIES.values()}:
        unknown = _of_the_same_layers(unknown, model)
    shapes = {name: [given, own] for name, given, own in report["mismatched_keys"]}
    _check_names(place, model, {*report["missing_keys"]} - {*optional}, unknown, shapes)
    _check_values(place, model)
    return Loaded(model, sorted({*report["unexpected_keys"]} - unknown))


def put_weights(model: PreTrainedModel, weights: Mapping[str, torch.Tensor], place: str) -> None:
    """Sets all weights of a model; of tied ones, one is given.

    Args:
        model: takes them.
        weights: by name.
        place: where they come from, for errors.

    Raises:
        InputError: if names or shapes are not the model's.
    """
    own = model.state_dict()
    tied = model.all_tied_weights_keys.items()
    given = {**weights, **{target: weights[source] for target, source in tied if source in weights}}
    shapes = {
        name: [given[name].shape, own[name].shape]
        for name in given.keys() & own.keys()
        if given[name].shape != own[name].shape
    }
    _check_names(place, model, own.keys() - given.keys(), given.keys() - own.keys(), shapes)
    model.load_state_dict(given)
    model.tie_weights()


def hash_weights(folder: Path) -> str:
    """SHA-256 of the weights in a model's folder, file by file in the order of their names.

    Of a single file it is what `sha256sum` and the file's page on the Hub show.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as content:
            for block in iter(lambda: content.read(1 << 22), b""):
                digest.update(block)
    return digest.hexdigest()


def _of_the_same_layers(names: Collection[str], model: PreTrainedModel) -> set[str]:
    """Those that are called as a tensor of the model but for the number of a layer: the configuration has too few."""
    kinds = {re.sub(r"\d+", "N", name) for name in model.state_dict()}
    return {name for name in names if re.sub(r"\d+", "N", name) in kinds}


def check_shards(folder: Path) -> None:
    """Raises InputError if the index of a folder's weights is damaged, or names files that lie elsewhere."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return
    try:
        shards = set(json.loads(index.read_text("utf-8")).get("weight_map", {}).values())
        outside = [shard for shard in shards if Path(shard).name != shard]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{index} is damaged: it must be JSON, with the file of each tensor as weight_map") from error
    if outside:
        raise InputError(f"{index} names a file outside the folder: {min(outside)}")


def _check_names(
    place: str,
    model: PreTrainedModel,
    missing: Collection[str],
    unknown: Collection[str],
    shapes: Mapping[str, list[Any]],
) -> None:
    """Raises InputError if there are any; `shapes` are those given and those that the model has."""
    wrong = [f"{name} is {tuple(given)}, not {tuple(own)}" for name, (given, own) in sorted(shapes.items())]
    kinds = {"missing": missing, "unknown": unknown, "of another shape": wrong}
    problems = [f"{len(names)} {kind} ({_first(names)})" for kind, names in kinds.items() if names]
    if problems:
        raise InputError(
            f"{place}: the weights are not those of the configuration, a {model.config.model_type}: of its tensors "
            f"{', '.join(problems)}; weights and config.json must be of one model, both as they were saved"
        )


def _check_values(place: str, model: PreTrainedModel) -> None:
    """Raises InputError if a weight is NaN or infinite."""
    weights = [(name, p.detach()) for name, p in model.named_parameters() if p.is_floating_point() and p.numel()]
    bad = [name for name, p in weights if not torch.stack(p.aminmax()).isfinite().all()]  # NaN is both
    if bad:
        raise InputError(
            f"{place}: {len(bad)} of {len(weights)} tensors have values that are NaN or infinite ({_first(bad)}); take "
            "the weights of a checkpoint from before that happened"
        )


def _first(names: Collection[str]) -> str:
    """A few of some names."""
    return ", ".join(sorted(names)[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
