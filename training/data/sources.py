"""Sources of text as a recipe names them, and the readers that they stand for.

A source is a path, whose ending tells its format, or a mapping with the fields of `Source`. Several sources are a list.
"""

from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError

from ..input_error import InputError
from .built_in import BuiltInPairs, BuiltInText
from .files import COMPRESSIONS, find_file, without_compression
from .gettext_catalogues import GettextCatalogues
from .hub_datasets import HubDataset
from .json_lines import JsonLines
from .parallel_files import ParallelFiles
from .parquet import ParquetFile
from .reader import Reader
from .tables import Table
from .text_files import TextFile
from .tmx import TranslationMemory

Documents = Literal["joined", "each", "blank_line"]

Format = Literal["parallel", "tsv", "csv", "jsonl", "parquet", "tmx", "gettext", "text"]

_FORMATS: dict[str, Format] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".tmx": "tmx",
    ".po": "gettext",
    ".mo": "gettext",
    ".txt": "text",
}
"""Ending -> format."""


@strict
@dataclass(kw_only=True)
class Source:
    """One source of sentence pairs or of running text."""

    path: str | None = None
    """A file, compressed or not (.gz, .xz, .zst, .bz2), whose ending tells its format: .tsv, .csv, .jsonl, .parquet,
    .tmx, .po, .mo or .txt; a folder of message catalogues or of Parquet files; or the beginning of the names of two
    parallel files, which end in the languages' codes: `corpus` for `corpus.en` and `corpus.de`."""

    target_path: str | None = None
    """The file of the translations of `path`, line by line, where the two are not named by their languages."""

    hub: str | None = None
    """Name of a data set on the Hub, instead of a path."""

    config: str | None = None
    """Configuration of the data set on the Hub, if it has several."""

    split: str = "train"
    """Split of the data set on the Hub, or of the built-in data."""

    revision: str | None = None
    """Branch, tag or commit of the data set on the Hub."""

    built_in: str | None = None
    """Name of data that ships with the package: cldr or shakespeare."""

    format: Format | None = None
    """Format of the file, if its ending does not tell."""

    columns: list[str | int] | None = None
    """Columns of a table, JSON object or data set: the source and the target, or the text; by name (with dots into
    nested ones) or by number from 1. By default the languages' codes, or `text`; 1 and 2 of a .tsv file."""

    documents: Documents | None = None
    """Running text only: what the rows are, as `data.documents` says for all sources."""

    tag: str | None = None
    """A sign that is put before every source sentence, such as `<2de>` for translation into several languages; it must
    be one of tokenizer.user_symbols. A finished model is given it in the same way: `<2de>Good morning.`"""

    weight: float | int = 1.0
    """How much of this source is seen in an epoch, relative to its share by size (see data.temperature)."""

    def __post_init__(self) -> None:
        given = [name for name in ("path", "hub", "built_in") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"has {' and '.join(given) or 'neither path nor hub nor built_in'}; give one of them")
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"weight is {self.weight}; it must be greater than 0")


def parse_sources(value: Any, field: str, dataset: str | None, config: str | None = None) -> list[Source]:
    """The sources that a recipe's field names.

    Args:
        value: a path or a split's name, a mapping, or a list of those.
        field: for messages, such as `data.train`.
        dataset: what names are relative to: a local folder, a data set on the Hub (then they are splits),
            built-in:NAME, or None.
        config: configuration of that data set.

    Raises:
        InputError: for a field that does not exist, a wrong value, or an empty list.
    """
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise InputError(f"{field} is an empty list; it must name a source of text")
    sources = []
    for number, entry in enumerate(entries, start=1):
        place = f"{field}, source {number}" if len(entries) > 1 else field
        if isinstance(entry, str):
            sources.append(_named_source(entry, place, dataset, config))
        elif isinstance(entry, dict):
            sources.append(_built_source(entry, place))
        else:
            raise InputError(f"{place} is {entry}; it must be a path, or a mapping such as {{path: corpus.tsv}}")
    return sources


def _built_source(entry: dict[str, Any], place: str) -> Source:
    known = [field.name for field in fields(Source)]
    for name in entry:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"a source has {', '.join(known)}"
            raise InputError(f"{place}: there is no field {name}; {hint}")
    try:
        return Source(**entry)
    except StrictDataclassError as error:
        reason = str(error.__cause__ or error).splitlines()[-1].strip()
        raise InputError(f"{place}: {reason}") from error
    except ValueError as error:
        raise InputError(f"{place}: {error}") from error


def _named_source(name: str, place: str, dataset: str | None, config: str | None) -> Source:
    """What a mere name means: a split of the data set, or a path, inside its folder if it is one."""
    if dataset is None:
        return Source(path=name)
    if dataset.startswith("built-in:"):
        return Source(built_in=dataset.removeprefix("built-in:"), split=name)
    path = Path(dataset)
    if path.is_dir():
        return Source(path=str(path / name))
    if path.is_file():
        raise InputError(
            f"data.dataset is the file {dataset}; it must be a folder or a data set on the Hub; the file is for {place}"
        )
    if dataset.startswith((".", "/", "~")) or dataset.count("/") > 1:  # so that a typing error is not looked up
        raise InputError(f"data.dataset: there is no folder {dataset}")
    return Source(hub=dataset, split=name, config=config)


def pair_reader(source: Source, source_language: str, target_language: str) -> Reader:
    """The reader of a source of sentence pairs.

    Raises:
        InputError: if there is no such file, or if it holds no pairs.
    """
    languages = (source_language, target_language)
    if source.documents is not None:
        raise InputError(f"{source.path or source.hub}: documents is for running text; sentence pairs have none")
    if source.built_in is not None:
        return BuiltInPairs(dataset=source.built_in, split=source.split, languages=languages)
    columns = _columns(source, languages)
    if source.hub is not None:
        return HubDataset(
            name=source.hub,
            config=source.config,
            split=source.split,
            revision=source.revision,
            columns=tuple(map(str, columns)),
        )
    path = Path(source.path or "").expanduser()
    if source.target_path is not None:
        return ParallelFiles(source=path, target=Path(source.target_path).expanduser())
    path, kind = _recognise(path, source.format, languages)
    match kind:
        case "parallel":
            return ParallelFiles.with_prefix(path, *languages)
        case "tmx":
            return TranslationMemory(path=path, source_language=source_language, target_language=target_language)
        case "gettext":
            return GettextCatalogues(folder=path, target_language=target_language)
        case "tsv" | "csv":
            default = (1, 2) if kind == "tsv" and source.columns is None else columns
            return Table(path=path, columns=default, delimiter="\t" if kind == "tsv" else ",")
        case "jsonl":
            return JsonLines(path=path, columns=tuple(map(str, columns)))
        case "parquet":
            return ParquetFile(path=path, columns=tuple(map(str, columns)))
    raise InputError(
        f"{path} is a text file; pairs come from two parallel files (path and target_path), or from .tsv, .csv, "
        ".jsonl, .parquet, .tmx, .po or .mo"
    )


def text_reader(source: Source, text_column: str = "text", documents: Documents | None = None) -> Reader:
    """The reader of a source of running text.

    Args:
        source: what to read.
        text_column: column of the text, if the source names none.
        documents: what rows are, if the source does not say.

    Raises:
        InputError: if there is no such file, or if it holds no running text.
    """
    if source.built_in is not None:
        return BuiltInText(dataset=source.built_in, split=source.split)
    (column,) = _columns(source, (text_column,))
    documents = source.documents or documents
    if source.hub is not None:
        return HubDataset(
            name=source.hub,
            config=source.config,
            split=source.split,
            revision=source.revision,
            columns=(str(column),),
            documents="joined" if documents == "joined" else "each",
        )
    path, kind = _recognise(Path(source.path or "").expanduser(), source.format, ())
    if kind != "text" and documents not in (None, "each"):
        raise InputError(f"{path}: documents is {documents}; every row of a {kind} file is a document")
    match kind:
        case "text":
            return TextFile(path=path, documents=documents or "joined")
        case "tsv" | "csv":
            default = 1 if kind == "tsv" and source.columns is None else column
            return Table(path=path, columns=(default,), delimiter="\t" if kind == "tsv" else ",")
        case "jsonl":
            return JsonLines(path=path, columns=(str(column),))
        case "parquet":
            return ParquetFile(path=path, columns=(str(column),))
    raise InputError(
        f"{path} holds translations ({kind}); running text comes from .txt, .tsv, .csv, .jsonl or .parquet"
    )


def _columns(source: Source, default: tuple[str, ...]) -> tuple[str | int, ...]:
    columns = tuple(source.columns) if source.columns is not None else default
    if len(columns) != len(default):
        what = "the source's and the target's" if len(default) == 2 else "the text's"
        raise InputError(f"{source.path or source.hub}: columns has {len(columns)} entries; it must have {what}")
    return columns


def _recognise(path: Path, given: Format | None, languages: tuple[str, ...]) -> tuple[Path, Format]:
    """The file that a path stands for, and its format."""
    if path.is_dir():
        if given is None and any(path.glob("*.parquet")):
            return path, "parquet"
        if given in (None, "gettext") and (any(path.rglob("*.po")) or any(path.rglob("*.mo"))):
            return path, "gettext"
        if given == "parquet":
            return path, given
        raise InputError(f"{path} is a folder without .po, .mo or .parquet files; give a file in it")
    kind = given or _FORMATS.get(without_compression(path).suffix.lower())
    if kind is not None and kind != "parallel":
        return find_file(path), kind
    if any(_exists(path, f".{language}") for language in languages):  # if one of the two is missing, it is named later
        return path, "parallel"
    if kind is None:
        for ending, named in _FORMATS.items():
            if _exists(path, ending) and (languages or named != "gettext"):
                return find_file(path.with_name(path.name + ending)), named
        if not languages and path.is_file():
            return path, "text"
    names = [f"{path}.{languages[0]} and {path}.{languages[1]}"] if languages else []
    names += [f"{path}{ending}" for ending in _FORMATS]
    raise InputError(
        f"there is no {path}, nor {', '.join(names)}, nor any of these compressed ({', '.join(COMPRESSIONS)})"
    )


def _exists(path: Path, ending: str) -> bool:
    return any(path.with_name(f"{path.name}{ending}{packed}").is_file() for packed in ("", *COMPRESSIONS))
