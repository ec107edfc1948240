"""Whether a model folder holds all that a published model needs."""

import json
import math
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from yaml import YAMLError

from ...configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ...modeling.families import FAMILIES, Family, family_of
from ..console.input_error import InputError
from ..evaluation.evaluation_file import EVALUATION_FILE, read_scores
from ..exact_weights import check_shards, load_exactly


def check_ready_to_push(folder: Path) -> None:
    """Checks that a folder holds all that a published model needs.

    Raises:
        InputError: naming the first thing that is missing or damaged: model configuration, weights,
            tokenizers, code, scores or card.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give the model folder of a finished run")
    config = _read_json(folder / "config.json", "give the model folder of a finished run")
    families = [family.config.model_type for family in FAMILIES.values()]
    if config.get("model_type") not in families:
        raise InputError(
            f"{folder} is no paperformer model: its config.json has the model_type "
            f"{config.get('model_type')!r}, not one of {', '.join(families)}"
        )
    _check_files_of_weights(folder)
    _check_tokenizers(folder, has_two=config.get("source_vocab_size") is not None)
    modules = {reference.partition(".")[0] for reference in config.get("auto_map", {}).values()}
    if not modules or not all((folder / f"{module}.py").is_file() for module in modules):
        raise InputError(f"{folder} lacks the model's code; save the model again with paperformer installed")

    file = folder / EVALUATION_FILE
    scores = read_scores(_read_json(file, "evaluate the model before publishing it"))
    if not scores:
        raise InputError(f"{file} has no scores; evaluate the model before publishing it")
    for score in scores:
        if not math.isfinite(score.value):
            raise InputError(f"{file} gives {score.metric.label} as {score.value}; evaluate the model again")
    card = folder / "README.md"
    if not _shows_scores(card):
        raise InputError(f"{card} is missing or shows no scores; write the model's card before publishing it")
    _check_weights(folder, family_of(config["model_type"]))


def _check_files_of_weights(folder: Path) -> None:
    """Checks that all are there, and none is cut short."""
    check_shards(folder)
    index = folder / "model.safetensors.index.json"
    shards = _read_json(index).get("weight_map", {}).values() if index.is_file() else []
    for shard in sorted(set(shards) or {"model.safetensors"}):
        try:
            with safe_open(folder / shard, framework="pt"):
                pass  # opening compares the header with the file's size
        except (OSError, SafetensorError) as error:
            raise InputError(f"{folder / shard} is missing or damaged; save the weights again") from error


def _check_weights(folder: Path, family: Family) -> None:
    """Checks that the weights are those of the configuration."""
    try:
        load_exactly(family.head.from_pretrained, str(folder))
    except InputError:
        raise
    except (OSError, ValueError, KeyError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{folder} holds no model that can be loaded: {reason}") from error


def _check_tokenizers(folder: Path, *, has_two: bool) -> None:
    """Checks that a folder has as many tokenizers as its model has vocabularies."""
    places = {folder: "save the model's tokenizer into the folder"}
    target = folder / PaperformerSeq2SeqConfig.target_tokenizer_folder
    if has_two:
        places[target] = "source and target have a vocabulary each: save the target's tokenizer there"
    elif target.exists():
        raise InputError(
            f"{target} is a second tokenizer, but config.json has no source_vocab_size, so the model has one "
            "vocabulary; remove one of the tokenizers"
        )
    for place, remedy in places.items():
        for name in ("tokenizer.json", "tokenizer_config.json"):
            _read_json(place / name, remedy)


def _shows_scores(card: Path) -> bool:
    """Whether a card is there, can be read, and has results in its metadata."""
    try:
        return bool(ModelCard.load(card).data.eval_results)
    except (ValueError, YAMLError):  # a missing file is a ValueError, too
        return False


def _read_json(path: Path, remedy: str = "") -> dict[str, Any]:
    """The object in a JSON file; InputError if there is none."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path} is missing; {remedy}") from error
    except ValueError as error:
        raise InputError(f"{path} is not a JSON file: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object")
    return content
