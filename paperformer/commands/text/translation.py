"""The command that translates: lines, catalogues, and other files that have text in them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ...api import texts
from ...api.given_models import search_of
from ...training.console.input_error import InputError
from ...translation.formats.names import FormatName, FormatOptions
from ..loading import check_task, load_config
from .in_shards import SHARD_LINES, Cluster, whole_path, work_in_shards
from .searching import (
    Searching,
    files_of,
    loading_of,
    models_of,
    record_of,
    refuse_searching,
    with_target_prefixes,
    work_of,
)
from .written_lines import skip, with_files, work_on_lines, write_to

if TYPE_CHECKING:
    from ...api.translators import Work
    from ...decoding.translator import Translator
    from ...translation.checking import Window
    from ...translation.cutting import Notes
    from ...translation.formats.record_output import RecordFile, RecordOutput


@dataclass(frozen=True)
class Asked:
    """What the command was given."""

    model: str
    input: str
    output: str
    decoding: dict[str, Any]
    """`num_beams`, `length_penalty` and `prefix`."""
    searching: Searching
    overwrite: bool
    trust_remote_code: bool

    @property
    def request(self) -> dict[str, Any]:
        """What decides about the output."""
        model = texts.place_of(self.model)
        decides = {name: value for name, value in self.searching.items() if name != "processes"}
        return {"model": model, "input": self.input, **self.decoding, **decides}


def translate(
    model: str,
    input: str = "-",  # noqa: A002
    output: str = "-",
    num_beams: int | None = None,
    length_penalty: float | None = None,
    prefix: str = "",
    format: FormatName | None = None,  # noqa: A002
    column: str = "",
    header: bool | None = None,
    field: str = "",
    into: str = "",
    source_language: str = "",
    target_language: str = "",
    check: bool = False,
    fuzzy_below: float = 0.5,
    on: Cluster | None = None,
    shard_lines: int = SHARD_LINES,
    overwrite: bool = False,
    trust_remote_code: bool = False,
    **searching: Unpack[Searching],
) -> None:
    """Translate text line by line: a line out for each line in, in order, whatever comes in.

    In a terminal, with no INPUT, each line is translated when it is entered; Ctrl-D ends.

    Files of localisation are translated as such, the same file with translations in it: message catalogues (.po, .pot)
    and XLIFF (.xlf, .xliff), of which what was untranslated is filled in, translation memories (.tmx), tables (.tsv,
    .csv) and JSON Lines (.jsonl).

    Files and pipes may be of any size: lines are written as soon as they and those before them are translated. A line
    that is longer than the model takes is translated in pieces; that, and what had to be left out of a line (bytes that
    are not UTF-8, control characters), is told on standard error.

    Args:
        model: A translation model's folder, its name on the Hub, or cldr-en-de, which comes with paperformer.
        input: File to translate, one sentence a line, perhaps compressed; - reads standard input.
        output: File for the translations; - writes standard output. It is FILE.part until it is complete; the same
            command goes on where it was interrupted.
        num_beams: Beam size; 1 is greedy and fastest. By default the model's own (generation_config.json), or 5.
        length_penalty: Exponent of the length by which a beam's score is divided; by default the model's own, or 1.
        prefix: Put before every line: a language tag, or what T5 is told to do.
        format: What the input is; by its name if not given, and text if that says nothing.
        column: Of a table, the column to translate: its name in the header, or its number from 1 if there is none.
        header: Whether a table's first row names the columns; if not given, where COLUMN is no number.
        field: Of JSON Lines, the field to translate; a.b is the field b of the object a.
        into: Column or field for the translations, which is added or written over; `translation` if not given.
        source_language: Code of the language that is translated, in a translation memory that does not say it.
        target_language: Code of the language to translate into, in a translation memory, or XLIFF that does not say it.
        check: Tell of each line of text whose translation has other placeholders, tags or numbers; of the other formats
            it is always told.
        fuzzy_below: A catalogue's message is marked as fuzzy where the mean probability of its tokens is less than
            that, from 0 to 1; and in any case where placeholders, tags or numbers are others.
        on: Where lines are translated, if not here: by a Ray cluster, that of RAY_ADDRESS or one on this machine, in
            shards, with --processes actors (docs/bulk).
        shard_lines: Lines of a shard.
        overwrite: Replace OUTPUT, and what an interrupted command has left of it.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ...translation.formats.file_formats import find_format

    _refuse_folder(input)
    options = FormatOptions(column, header, field, into, source_language, target_language, fuzzy_below)
    found = find_format(input, format, options)
    beams, penalty = search_of(model, num_beams, length_penalty, searching.get("n_best"))
    decoding: dict[str, Any] = {"num_beams": beams, "length_penalty": penalty, "prefix": prefix}
    asked = Asked(model, input, output, decoding, searching, overwrite, trust_remote_code)
    if on is not None:
        if found != "text":
            raise InputError(f"--on {on} is for lines of text, and {input} is {found}; leave it out, or --format text")
        _translate_shards(asked, check, shard_lines)
    elif found == "text":
        _translate_lines(asked, check)
    else:
        _translate_records(asked, found, options)


def _refuse_folder(name: str) -> None:
    if Path(name).is_dir():
        raise InputError(
            f"{name} is a folder; give its files one by one: for file in {name.rstrip('/')}/*.po; do paperformer "
            'translate MODEL --input "$file" --output "${file%.po}.new.po"; done'
        )


def _translate_lines(asked: Asked, check: bool) -> None:
    from ...training.data.text.lines import count_lines
    from ...translation.checking import checked
    from ...translation.interactive import converse
    from ...translation.line_source import ReadAhead, lines_of_file, lines_of_standard_input

    searching = asked.searching
    work, written = work_of(**asked.decoding, searching=searching)
    if asked.input == asked.output == "-" and sys.stdin.isatty() and sys.stdout.isatty():
        if searching.get("target_prefixes", "-") != "-":
            raise InputError("target_prefixes is a file, and the lines come from the terminal; give --input")
        with _open_window(asked, work) as window:
            window = checked(window) if check else window
            converse(lambda lines: with_target_prefixes(lines, searching), window, written)
        return
    total = None if asked.input == "-" else count_lines(Path(asked.input))
    with ExitStack() as stack:
        window = stack.enter_context(_open_window(asked, work))
        window = checked(window) if check else window
        file = write_to(asked.output, asked.request, asked.overwrite, files_of(searching), record_of(searching))
        stack.enter_context(file)
        source = lines_of_standard_input() if asked.input == "-" else lines_of_file(Path(asked.input))
        lines = stack.enter_context(closing(ReadAhead(with_target_prefixes(source, searching))))
        skip(lines, file.done, asked.output)
        is_shown = asked.output != "-"
        work_on_lines(window, lines, written, file, total, is_shown=is_shown, described="translate")


def _translate_shards(asked: Asked, check: bool, shard_lines: int) -> None:
    from ...bulk.shard_work import LineWork

    searching = asked.searching
    work, written = work_of(**asked.decoding, searching={**searching, "processes": 1})
    prefixes = searching.get("target_prefixes", "-")
    lines = LineWork(
        load=partial(_load_window, _seen_from_anywhere(asked), work, check),
        written=written,
        files=(asked.input, *([] if prefixes == "-" else [prefixes])),
        output=asked.output,
        prefix=searching.get("target_prefix"),
    )
    if (processes := searching.get("processes", 0)) < 0:
        raise InputError(f"processes is {processes}; it must be at least 1")
    check_task(load_config(texts.place_of(asked.model), trust_remote_code=asked.trust_remote_code), "translation",
               asked.model)  # fmt: skip
    request = with_files(asked.request, files_of(searching))
    work_in_shards(
        lines,
        request,
        workers=processes,
        shard_lines=shard_lines,
        overwrite=asked.overwrite,
        described="translate",
    )


def _seen_from_anywhere(asked: Asked) -> Asked:
    """The same, with whole paths of models: processes of a cluster are in other folders."""
    searching = asked.searching
    if others := models_of(searching):
        searching = {**searching, "ensemble": ",".join(map(whole_path, others))}
    return replace(asked, model=whole_path(texts.place_of(asked.model)), searching=searching)


def _load_window(asked: Asked, work: "Work", check: bool) -> "Window":
    """In a process of a cluster."""
    from ...translation.checking import checked

    window = partial(work, _load(asked))
    return checked(window) if check else window


@contextmanager
def _open_window(asked: Asked, work: "Work") -> "Iterator[Window]":
    """Loads the model, or those of an ensemble, in this process or in several."""
    from ...api.model_processes import ModelProcesses
    from ...api.translators import load_translator

    others, trust = models_of(asked.searching), asked.trust_remote_code
    processes = asked.searching.get("processes", 1)
    if processes < 1:
        raise InputError(f"processes is {processes}; it must be at least 1")
    if processes == 1:
        yield partial(work, _load(asked))
        return
    places = [texts.place_of(name) for name in (asked.model, *others)]
    for place in places:  # before there is anything
        check_task(load_config(place, trust_remote_code=trust), "translation", place)
    options = loading_of(asked.searching)
    load = partial(load_translator, places[0], places[1:], trust_remote_code=trust, **options)
    with ModelProcesses(load, processes) as pool:
        yield partial(pool.do, work, show_progress=False)


def _load(asked: Asked) -> "Translator":
    """The model, or those of an ensemble, in this process."""
    from ...api.translators import load_translator

    others, engine = models_of(asked.searching), asked.searching.get("engine", "torch")
    options: dict[str, Any] = {"trust_remote_code": asked.trust_remote_code, "engine": engine}
    return load_translator(asked.model, others, **options, **loading_of(asked.searching))


def _translate_records(asked: Asked, found: FormatName, options: FormatOptions) -> None:
    from ...api.translators import aligned_work, sure_work
    from ...translation.checking import text_of
    from ...translation.formats.catalogues import CatalogueFile
    from ...translation.formats.record_output import RecordFile, RecordOutput
    from ...translation.line_output import refuse_output
    from .translated_files import translate_file

    refuse_searching(asked.searching, asked.input, found)
    is_torch = asked.searching.get("engine", "torch") == "torch"
    if found == "gettext" and not is_torch:
        raise InputError(
            f"{asked.input} is a catalogue, which torch translates, since it is to say how sure the model is; "
            "leave --engine out"
        )
    if asked.output != "-":  # before anything is read or loaded
        refuse_output(Path(asked.output), overwrite=asked.overwrite)
    work, _ = work_of(**asked.decoding, searching=asked.searching)
    if is_torch:  # others have no attention to see
        work = (sure_work if found == "gettext" else aligned_work)(work, asked.decoding["prefix"])

    def open_output() -> "RecordFile | RecordOutput":
        if asked.output == "-":
            return RecordOutput()
        request = with_files(asked.request, files_of(asked.searching)) | {"format": found, **asdict(options)}
        if found == "gettext":
            source = None if asked.input == "-" else Path(asked.input)
            return CatalogueFile(source, Path(asked.output), request, overwrite=asked.overwrite)
        return RecordFile(Path(asked.output), request, overwrite=asked.overwrite)

    with ExitStack() as stack:

        def load() -> Callable[[Sequence[str], "Notes"], list[str]]:
            window = stack.enter_context(_open_window(asked, work))
            return lambda lines, note: [text_of(result) for result in window(lines, note)]

        translate_file(load, asked.input, found, options, open_output, partial(skip, output=asked.output))
