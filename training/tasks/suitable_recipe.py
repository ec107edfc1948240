"""What a command line without a recipe leaves open: languages, a name, held-out parts, a size and steps that suit.

Whoever has one file and no recipe gets one by `complete_recipe`, and finds it whole in the run's folder afterwards. The
sizes are those of the recipes that ship with the package and of the papers, by the amount of text; they are a place to
begin, not the best there is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..console.input_error import InputError
from ..console.progress import say
from ..data.readers.languages import find_languages, is_language
from ..data.readers.sources import FORMATS, Source, pair_reader, parse_sources, text_reader
from ..data.text.files import COMPRESSIONS, without_compression
from ..recipe.parsing import Completion

HELD_OUT = {0.1: 0.1, 1: 0.05, float("inf"): 0.02}
"""Megabytes of text, up to which -> share of it for validation, and for the test."""

CHARACTERS_A_TOKEN = 3.5
COMPRESSION = 3.5
"""How many bytes a compressed byte stands for."""


@dataclass(frozen=True)
class Size:
    """A model, and how it is trained."""

    megabytes: float
    """Of text, up to which it is meant."""

    hidden_size: int
    heads: int
    layers: int
    """Of an encoder or a decoder; of an encoder-decoder the half, in each."""

    dropout: float
    vocab_size: int
    context_length: int
    tokens_per_batch: int
    epochs: int
    """Passes over the text, for translation."""


SIZES = [
    Size(4, 256, 4, 6, 0.3, 4_000, 128, 2048, 40),
    Size(40, 256, 4, 8, 0.2, 8_000, 256, 4096, 25),
    Size(400, 512, 8, 12, 0.1, 16_000, 512, 8192, 12),
    Size(float("inf"), 768, 12, 12, 0.1, 32_000, 1024, 32_768, 4),
]


LAYERS = ("encoder_layers", "decoder_layers", "num_hidden_layers")


def complete_recipe(objective: str, given: dict[str, str], *, is_parallel: bool) -> Completion:
    """Completes a command line that names no recipe.

    Args:
        objective: its name.
        given: field -> value as it was written.
        is_parallel: whether it learns from sentence pairs.

    Raises:
        InputError: if languages are not given and the data does not name them, if a part is held out and the other is
            not, or if the run to be resumed is not there.
    """
    sources: list[Source] = []
    if "data.train" in given and "data.dataset" not in given:
        sources = parse_sources(_read_value(given["data.train"]), "data.train", None)
    defaults: dict[str, Any] = {}
    if sources:
        if is_parallel:
            defaults |= _languages(sources, given)
        defaults["name"] = _name(objective, sources[0], given | defaults)
    name = given.get("name", defaults.get("name"))
    if given.get("resume") == "true" and name is not None:
        recipe = Path(given.get("output_dir", "runs")) / name / "recipe.yaml"
        if recipe.is_file():
            return Completion(recipe)
        if not sources and not any(field.startswith("data.") for field in given):
            raise InputError(f"there is no run {recipe.parent} to resume; give its --name and --output_dir")
    if not sources:
        _check_data_is_named(given)
        return Completion()
    num_bytes = sum(map(_size_of, sources)) if all(source.path for source in sources) else None
    defaults |= _splits(given, num_bytes)
    if num_bytes is not None:
        defaults |= _size_and_steps(objective, num_bytes, is_further="init_from" in given)
    left = {field: value for field, value in defaults.items() if field not in given}
    if "init_from" in given:  # which decides the model, and with it how long a context may be
        decided = ("model.", "tokenizer.", "data.context_length")
        left = {field: value for field, value in left.items() if not field.startswith(decided)}
    if not is_parallel:
        left.setdefault("data.language", None)
    for source in sources:  # a file that is not there is named before anything is said about it
        _open(source, given | left, is_parallel=is_parallel)
    _explain(left, given, num_bytes)
    return Completion(defaults=left)


def _read_value(text: str) -> Any:
    """A path, or the mapping or list that a text is in YAML; `*.tsv` is a path, though no YAML."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, list | dict) else text


def _check_data_is_named(given: Mapping[str, str]) -> None:
    """Raises InputError if nothing, or a file in the wrong place, says what to train on."""
    if dataset := given.get("data.dataset"):
        if Path(dataset).is_file():
            raise InputError(f"data.dataset is the file {dataset}; a file is given as --data.train {dataset}")
    elif "data.train" not in given:
        raise InputError("nothing says what to train on; give --data.train FILE, or a recipe: --config NAME")


def _open(source: Source, fields: dict[str, Any], *, is_parallel: bool) -> None:
    if is_parallel:
        pair_reader(source, fields["data.source_language"], fields["data.target_language"]).files()
    else:
        text_reader(source, fields.get("data.text_column", "text")).files()


def _languages(sources: list[Source], given: Mapping[str, str]) -> dict[str, Any]:
    """The languages' fields."""
    fields = ("data.source_language", "data.target_language")
    chosen = {field: given[field] for field in fields if field in given}
    named = find_languages(sources[0])
    where = sources[0].path or sources[0].hub or f"built-in:{sources[0].built_in}"
    others = [code for code in named if code not in chosen.values()]
    is_table = without_compression(Path(sources[0].path or "")).suffix.lower() in (".tsv", ".csv")
    if not chosen and len(named) == 2 and is_table:  # in the order of its columns
        chosen = dict(zip(fields, named, strict=True))
    elif len(chosen) == 1 and len(others) == 1 and len(named) == 2:
        (missing,) = (field for field in fields if field not in chosen)
        chosen[missing] = others[0]
    if missing_fields := [field for field in fields if field not in chosen]:
        says = f"it names {' and '.join(named)}" if named else "it does not name them"
        options = " and ".join(f"--{field} CODE" for field in missing_fields)
        raise InputError(f"{where}: from which language into which? {says}; give {options}, such as en or pt_BR")
    if len(named) == 2 and set(chosen.values()) != set(named):
        raise InputError(
            f"{where} has {' and '.join(named)}; the languages are {chosen[fields[0]]} and {chosen[fields[1]]}"
        )
    return chosen


def _name(objective: str, source: Source, fields: Mapping[str, Any]) -> str:
    """Of the file, and of the languages or the objective: `corpus-en-is`, `stories-lm`."""
    path = without_compression(Path(source.path or source.hub or source.built_in or "data"))
    endings = [ending for file_format in FORMATS for ending in file_format.endings]
    stem = path.stem if path.suffix.lower() in endings or is_language(path.suffix[1:]) else path.name
    languages = [fields[f"data.{side}_language"] for side in ("source", "target") if f"data.{side}_language" in fields]
    words = [word for word in languages if word not in stem.split("-")] if languages else [objective]
    return "-".join([stem.lstrip(".") or "data", *words])


def _splits(given: Mapping[str, str], num_bytes: int | None) -> dict[str, Any]:
    named = [split for split in ("data.validation", "data.test") if split in given]
    if len(named) == 1:
        (missing,) = {"data.validation", "data.test"} - set(named)
        raise InputError(f"{named[0]} is given and {missing} is not; give both, or neither: they are then held out")
    share = next(share for megabytes, share in HELD_OUT.items() if (num_bytes or 1e9) <= 1e6 * megabytes)
    return {} if named else {"data.hold_out": share}


def _size_of(source: Source) -> int:
    """Bytes of text, roughly."""
    path = Path(source.path or "").expanduser()
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
    else:
        files = [path, *path.parent.glob(f"{path.name}.*")] if not path.is_file() else [path]
    if source.target_path:
        files.append(Path(source.target_path).expanduser())
    packed = (*COMPRESSIONS, ".parquet")
    return int(sum(f.stat().st_size * (COMPRESSION if f.suffix in packed else 1) for f in files if f.is_file()))


def _size_and_steps(objective: str, num_bytes: int, *, is_further: bool) -> dict[str, Any]:
    size = next(size for size in SIZES if num_bytes <= 1e6 * size.megabytes)
    is_pairs, is_seq2seq = objective == "seq2seq", objective in ("seq2seq", "denoising")
    tokens = num_bytes / CHARACTERS_A_TOKEN / (2 if is_pairs else 1)
    # A language model learns all of a text in each pass, a masked one a seventh of it.
    epochs = {"seq2seq": size.epochs, "lm": max(2, size.epochs // 4)}.get(objective, size.epochs)
    steps = min(200_000, max(400, round(epochs * tokens / size.tokens_per_batch, -2)))
    layers = {"encoder_layers": size.layers // 2, "decoder_layers": size.layers // 2}
    model = {
        "hidden_size": size.hidden_size,
        "intermediate_size": 4 * size.hidden_size,
        "num_attention_heads": size.heads,
        "norm_position": "pre",
        "dropout": size.dropout,
        **(layers if is_seq2seq else {"num_hidden_layers": size.layers}),
    }
    if not is_pairs:
        model["max_position_embeddings"] = max(512, 2 * size.context_length)
    fields: dict[str, Any] = {f"model.{name}": value for name, value in model.items()}
    if not is_pairs:
        fields["data.context_length"] = size.context_length
    return fields | {
        "tokenizer.vocab_size": size.vocab_size,
        "optimization.max_steps": int(steps),
        "optimization.tokens_per_batch": size.tokens_per_batch,
        "optimization.learning_rate": 0.0003 if is_further else 0.001,
        "optimization.schedule": "cosine",
        "optimization.warmup_steps": int(min(2000, steps // 10)),
        "evaluation.every_steps": int(max(100, steps // 10)),
        "evaluation.patience": 3,
    }


def _explain(chosen: dict[str, Any], given: dict[str, str], num_bytes: int | None) -> None:
    """Says what was chosen, and how to choose otherwise."""
    fields = dict(chosen) | given
    lines = [f"no recipe was given; {fields['name']} gets one:"]
    if "data.source_language" in fields:
        lines.append(f"from {fields['data.source_language']} to {fields['data.target_language']}")
    if "data.hold_out" in chosen:
        share = f"{chosen['data.hold_out']:.0%}"
        lines.append(f"{share} of the text held out for validation, {share} for the test")
    if num_bytes is not None:
        layers = [str(fields[f"model.{name}"]) for name in LAYERS if f"model.{name}" in fields]
        size = (
            f"the model and the vocabulary of {fields['init_from']}"
            if "init_from" in fields
            else (
                f"{' + '.join(layers)} layers, {fields['model.hidden_size']} wide, a vocabulary of "
                f"{fields['tokenizer.vocab_size']}"
            )
        )
        lines.append(
            f"for {num_bytes / 1e6:,.1f} MB of text {size}, and up to {fields['optimization.max_steps']} steps"
        )
    say("\n    ".join(lines))
