"""Whether a model folder holds all that a published model needs."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from huggingface_hub.errors import StrictDataclassError
from huggingface_hub.repocard_data import eval_results_to_model_index
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from transformers import PreTrainedModel
from yaml import YAMLError

from ...configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ...modeling.families import FAMILIES, Family, family_of
from ..console.input_error import InputError
from ..evaluation.evaluation_file import EVALUATION_FILE, read_scores
from ..evaluation.metrics import Score
from ..exact_weights import check_shards, hash_weights, load_exactly

MOST_PADDING = 256
"""Rows of an embedding beyond its vocabulary: sizes are rounded up to what computes fast (pad_vocab_to_multiple_of)."""


def check_ready_to_push(folder: Path, secret: str | None = None) -> PreTrainedModel:
    """Checks that a folder holds all that a published model needs, and that its scores are those of its weights.

    Args:
        folder: a finished model's.
        secret: an access token, which must be in no file.

    Returns:
        The model.

    Raises:
        InputError: naming the first thing that is missing or damaged: model configuration, weights,
            tokenizers, code, scores or card; or that was written for other weights.
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

    scores = _check_scores(folder)
    _check_card(folder / "README.md", scores)
    model = _check_weights(folder, family_of(config["model_type"]))
    _check_stamp(folder)
    _check_vocabularies(folder, model)
    if secret:
        _check_no_secret(folder, secret)
    return model


def _check_scores(folder: Path) -> list[Score]:
    """The scores, if they are finite."""
    file = folder / EVALUATION_FILE
    evaluation = _read_json(file, "evaluate the model before publishing it")
    scores = read_scores(evaluation)
    if not scores:
        raise InputError(f"{file} has no scores; evaluate the model before publishing it")
    for score in scores:
        if not math.isfinite(score.value):
            raise InputError(f"{file} gives {score.metric.label} as {score.value}; evaluate the model again")
    return scores


def _check_stamp(folder: Path) -> None:
    """Checks that the scores are those of the weights beside them."""
    file = folder / EVALUATION_FILE
    evaluation = _read_json(file)
    remedy = "resume the run, which evaluates it: paperformer train OBJECTIVE --config RUN/recipe.yaml --resume"
    own = hash_weights(folder)
    for entry in [evaluation] if "task" in evaluation else evaluation.values():
        if (evaluated := entry.get("weights_sha256")) is None:
            raise InputError(f"{file} does not say of which weights its scores are (weights_sha256); {remedy}")
        if evaluated != own:
            raise InputError(
                f"{file} has the scores of other weights (SHA-256 {evaluated[:12]}...) than those that are beside it "
                f"({own[:12]}...); {remedy}"
            )


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


def _check_weights(folder: Path, family: Family) -> PreTrainedModel:
    """The model, if the weights are those of the configuration."""
    try:
        return load_exactly(family.head.from_pretrained, str(folder)).model.eval()
    except InputError:
        raise
    except (OSError, ValueError, KeyError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{folder} holds no model that can be loaded: {reason}") from error


def _check_vocabularies(folder: Path, model: PreTrainedModel) -> None:
    """Checks that a model has a row for each entry of its tokenizer, and hardly more."""
    sizes = {folder: getattr(model.config, "source_vocab_size", None) or model.config.vocab_size}
    if getattr(model.config, "source_vocab_size", None):
        sizes[folder / PaperformerSeq2SeqConfig.target_tokenizer_folder] = model.config.vocab_size
    for place, rows in sizes.items():
        try:
            entries = Tokenizer.from_file(str(place / "tokenizer.json")).get_vocab_size()
        except Exception as error:
            raise InputError(f"{place / 'tokenizer.json'} is no tokenizer: {error}") from error
        if not rows - MOST_PADDING <= entries <= rows:
            raise InputError(
                f"{place / 'tokenizer.json'} has {entries:,} entries, and the model {rows:,} rows for them; they do "
                "not belong together: save the tokenizer that the model was trained with"
            )


def _check_no_secret(folder: Path, secret: str) -> None:
    """Checks that no text that would be published has an access token in it."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".safetensors" and secret.encode() in path.read_bytes():
            raise InputError(f"{path} has your access token in it; take it out, and make another one")


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


def _check_card(card: Path, scores: Sequence[Score]) -> None:
    """Checks that a card can be read, and that its `model-index` has the scores.

    The Hub checks the metadata again when it gets them; this needs no network.
    """
    remedy = "write the model's card before publishing it"
    try:
        data = ModelCard.load(card).data
        results = data.eval_results or []
        eval_results_to_model_index(data.model_name or "", results)
    except (ValueError, TypeError, KeyError, AttributeError, YAMLError) as error:  # a missing file is a ValueError, too
        reason = " ".join(str(error).split())
        raise InputError(f"{card} is missing or shows no scores: {reason}; {remedy}") from error
    shown = {(result.dataset_split, result.metric_type, result.metric_value) for result in results}
    measured = {(score.split, score.metric.name, round(score.value, score.metric.digits)) for score in scores}
    if not results:
        raise InputError(f"{card} is missing or shows no scores; {remedy}")
    if shown != measured:
        split, metric, value = min(shown ^ measured, key=str)
        raise InputError(
            f"{card} and {EVALUATION_FILE} have not the same scores: {split} {metric} {value} is in one of them only; "
            f"{remedy}"
        )


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
