"""Sources of text as a recipe names them, and the readers that they stand for.

A source is a path, whose ending tells its format, or a mapping with the fields of `Source`. Several sources are a list.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict

from ...console.input_error import InputError
from ...console.suggestions import suggest
from ...recipe.checks import build
from ..built_in.readers import BuiltInPairs, BuiltInText
from ..text.files import COMPRESSIONS, find_file, without_compression
from .gettext_catalogues import GETTEXT
from .hub_datasets import HubDataset
from .json_lines import JSON_LINES
from .parallel_files import ParallelFiles
from .parquet import PARQUET
from .reader import Documents, FileFormat, Reader, Request
from .tables import CSV, TSV
from .text_files import TEXT
from .tmx import TMX

FORMATS = [TSV, CSV, JSON_LINES, PARQUET, TMX, GETTEXT, TEXT]
"""The formats of files. Of several files whose names differ in the ending alone, the first format's is read."""

BUILT_IN_TITLES = {"cldr": "localised expressions of Unicode CLDR", "shakespeare": "Shakespeare's plays"}

PARALLEL = "parallel"
"""The format of two files of one prefix, which end in the languages' codes."""

_NO_COLUMNS = "only tables, JSON Lines, Parquet and data sets of the Hub have columns"


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

    format: str | None = None
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

    domain: str | None = None
    """What kind of text it is, such as `news`: the card has the scores of the test set by domain. Several sources may
    be of one; by default each is one by itself."""

    domain_column: str | int | None = None
    """The column of a table, JSON object or data set that says the domain of each row, by name or by number as in
    `columns`; a row where it is empty is of the source's domain."""

    def __post_init__(self) -> None:
        given = [name for name in ("path", "hub", "built_in") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"has {' and '.join(given) or 'neither path nor hub nor built_in'}; give one of them")
        known = [PARALLEL, *(file_format.name for file_format in FORMATS)]
        if self.format not in (None, *known):
            raise ValueError(f"format is {self.format}; it must be {_any_of(known)}")
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"weight is {self.weight}; it must be greater than 0")
        if self.domain is not None and not self.domain.strip():
            raise ValueError("domain is empty; give it a name, or leave it out")
        if self.domain_column is not None and (self.built_in is not None or self.target_path is not None):
            raise ValueError(f"domain_column is {self.domain_column}; {_NO_COLUMNS}")

    @property
    def title(self) -> str:
        """What a card calls it: its name, without folders of the machine that it lies on."""
        if self.built_in:
            return BUILT_IN_TITLES[self.built_in]
        return self.hub or "/".join(Path(self.path or "").resolve().parts[-2:])


def name_domains(sources: Sequence[Source]) -> list[str]:
    """The domain of each source: the one that it says, else its title, with what tells it from others of that title."""
    titles = Counter(source.title for source in sources)
    return [source.domain or _full_title(source, titles[source.title] > 1) for source in sources]


def _full_title(source: Source, is_shared: bool) -> str:
    split = None if source.hub is None and source.built_in is None else source.split
    more = ", ".join(filter(None, (source.config, split, source.tag))) if is_shared else ""
    return f"{source.title} ({more})" if more else source.title


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
            hint = suggest(str(name), known, f"a source has {', '.join(known)}")
            raise InputError(f"{place}: there is no field {name}; {hint}")
    return build(Source, entry, f"{place}: ")


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


def pair_reader(source: Source, source_language: str, target_language: str, *, with_domains: bool = False) -> Reader:
    """The reader of a source of sentence pairs.

    Args:
        source: what to read.
        source_language, target_language: their codes.
        with_domains: whether its chunks have the domain of each row, if the source has a column of them.

    Raises:
        InputError: if there is no such file, or if it holds no pairs.
    """
    languages = (source_language, target_language)
    if source.documents is not None:
        raise InputError(f"{source.path or source.hub}: documents is for running text; sentence pairs have none")
    if source.built_in is not None:
        return BuiltInPairs(dataset=source.built_in, split=source.split, languages=languages)
    request = _request(source, languages, with_domains=with_domains)
    if source.hub is not None:
        return _hub_dataset(source, request)
    path = Path(source.path or "").expanduser()
    if source.target_path is not None:
        return ParallelFiles(source=path, target=Path(source.target_path).expanduser())
    path, file_format = _recognise(path, source.format, languages)
    _check_domains(source, file_format)
    if file_format is None:
        return ParallelFiles.with_prefix(path, *languages)
    if not file_format.has_pairs:
        hint = f"; if its lines are pairs with a tab between: {{path: {path}, format: tsv}}" * (file_format is TEXT)
        raise InputError(
            f"{path} is a {file_format.name} file; pairs come from two parallel files (path and target_path), or from "
            f"{_any_of(_endings([known for known in FORMATS if known.has_pairs]))}" + hint
        )
    return file_format.reader(path, request)


def text_reader(
    source: Source, text_column: str = "text", documents: Documents | None = None, *, with_domains: bool = False
) -> Reader:
    """The reader of a source of running text.

    Args:
        source: what to read.
        text_column: column of the text, if the source names none.
        documents: what rows are, if the source does not say.
        with_domains: as `pair_reader` takes it.

    Raises:
        InputError: if there is no such file, or if it holds no running text.
    """
    if source.built_in is not None:
        return BuiltInText(dataset=source.built_in, split=source.split)
    request = _request(source, (text_column,), source.documents or documents, with_domains=with_domains)
    if source.hub is not None:
        return _hub_dataset(source, request)
    path, file_format = _recognise(Path(source.path or "").expanduser(), source.format, ())
    assert file_format is not None  # parallel files need languages
    _check_domains(source, file_format)
    if not file_format.divides_documents and request.documents not in (None, "each"):
        raise InputError(
            f"{path}: documents is {request.documents}; every row of a {file_format.name} file is a document"
        )
    if not file_format.has_text:
        raise InputError(
            f"{path} holds translations ({file_format.name}); running text comes from "
            f"{_any_of(_endings([known for known in FORMATS if known.has_text]))}"
        )
    return file_format.reader(path, request)


def _hub_dataset(source: Source, request: Request) -> HubDataset:
    return HubDataset(
        name=source.hub or "",
        config=source.config,
        split=source.split,
        revision=source.revision,
        columns=request.column_names,
        documents="joined" if request.documents == "joined" else "each",
        domain=request.domain_name,
    )


def _check_domains(source: Source, file_format: FileFormat | None) -> None:
    if source.domain_column is not None and (file_format is None or not file_format.has_columns):
        raise InputError(f"{source.path}: domain_column is {source.domain_column}; {_NO_COLUMNS}")


def _request(
    source: Source, names: tuple[str, ...], documents: Documents | None = None, *, with_domains: bool = False
) -> Request:
    columns = tuple(source.columns) if source.columns is not None else None
    if columns is not None and len(columns) != len(names):
        what = "the source's and the target's" if len(names) == 2 else "the text's"
        raise InputError(f"{source.path or source.hub}: columns has {len(columns)} entries; it must have {what}")
    domain = source.domain_column if with_domains else None
    return Request(names=names, columns=columns, documents=documents, domain=domain)


def _recognise(path: Path, given: str | None, languages: tuple[str, ...]) -> tuple[Path, FileFormat | None]:
    """The file that a path stands for, and its format; None is that of parallel files, which have that prefix."""
    if path.is_dir():
        of_folders = [file_format for file_format in FORMATS if file_format.in_folders]
        for file_format in of_folders:
            if given in (None, file_format.name) and any(path.glob(file_format.in_folders or "")):
                return path, file_format
        raise InputError(f"{path} is a folder without {_any_of(_endings(of_folders))} files; give a file in it")
    ending = without_compression(path).suffix.lower()
    for file_format in FORMATS:
        if given == file_format.name or (given is None and ending in file_format.endings):
            return find_file(path), file_format
    if any(_exists(path, f".{language}") for language in languages):  # if one of the two is missing, it is named later
        return path, None
    if given is None:
        for file_format in FORMATS:
            for ending in file_format.endings:
                if _exists(path, ending) and (languages or file_format.has_text):
                    return find_file(path.with_name(path.name + ending)), file_format
        if not languages and path.is_file():
            return path, TEXT
    if path.is_file():  # of pairs: running text is plain where nothing says another format
        known = [file_format.name for file_format in FORMATS if file_format.has_pairs]
        raise InputError(
            f"{path}: its name does not tell its format; give it, {_any_of(known)}, as in {{path: {path}, format: "
            "tsv}, or, of parallel files, path and target_path"
        )
    names = [f"{path}.{languages[0]} and {path}.{languages[1]}"] if languages else []
    names += [f"{path}{ending}" for ending in _endings(FORMATS)]
    raise InputError(
        f"there is no {path}, nor {', '.join(names)}, nor any of these compressed ({', '.join(COMPRESSIONS)})"
    )


def _endings(formats: list[FileFormat]) -> list[str]:
    return [ending for file_format in formats for ending in file_format.endings]


def _any_of(names: list[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _exists(path: Path, ending: str) -> bool:
    return any(path.with_name(f"{path.name}{ending}{packed}").is_file() for packed in ("", *COMPRESSIONS))
