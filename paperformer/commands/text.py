"""The command that translates: lines, and message catalogues."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ..api import texts
from ..training.console.input_error import InputError
from .searching import Searching, files_of, models_of, record_of, with_target_prefixes, work_of

if TYPE_CHECKING:
    from ..translation.cutting import Notes
    from ..translation.line_output import OutputFile, RecordOf, StandardOutput
    from ..translation.line_source import ReadAhead
    from ..translation.streaming import Written

NOTES_SHOWN = 10


def translate(
    model: str,
    input: str = "-",  # noqa: A002
    output: str = "-",
    num_beams: int = 5,
    length_penalty: float = 1.0,
    prefix: str = "",
    fuzzy_below: float = 0.5,
    overwrite: bool = False,
    trust_remote_code: bool = False,
    **searching: Unpack[Searching],
) -> None:
    """Translate text line by line: a line out for each line in, in order, whatever comes in.

    In a terminal, with no INPUT, each line is translated when it is entered; Ctrl-D ends.

    A message catalogue (.po, .pot) is translated as such: the same file, with what was untranslated filled in.

    Files and pipes may be of any size: lines are written as soon as they and those before them are translated. A line
    that is longer than the model takes is translated in pieces; that, and what had to be left out of a line (bytes that
    are not UTF-8, control characters), is told on standard error.

    Args:
        model: A translation model's folder, or its name on the Hub.
        input: File to translate, one sentence a line, perhaps compressed; - reads standard input.
        output: File for the translations; - writes standard output. It is FILE.part until it is complete; the same
            command goes on where it was interrupted.
        num_beams: Beam size; 1 is greedy and fastest.
        length_penalty: Exponent of the length by which a beam's score is divided.
        prefix: Put before every line: a language tag, or what T5 is told to do.
        fuzzy_below: A catalogue's message is marked as fuzzy where the mean probability of its tokens is less than
            that, from 0 to 1; and in any case where placeholders, tags or numbers are others.
        overwrite: Replace OUTPUT, and what an interrupted command has left of it.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..api.parallel_translation import TranslationProcesses
    from ..api.translators import load_translator
    from ..training.data.text.files import without_compression
    from ..training.data.text.lines import count_lines
    from ..translation.interactive import converse
    from ..translation.line_source import ReadAhead, lines_of_file, lines_of_standard_input
    from .loading import check_task, load_config

    texts.check_beams(num_beams)
    if without_compression(Path(input)).suffix in (".po", ".pot"):
        if searching:
            raise InputError(f"--{next(iter(searching))} is given, and {input} is a catalogue; leave it out")
        options = {"num_beams": num_beams, "length_penalty": length_penalty, "prefix": prefix}
        _translate_catalogue(model, Path(input), output, fuzzy_below, overwrite, trust_remote_code, options)
        return
    work, written = work_of(num_beams, length_penalty, prefix, searching)
    if (processes := searching.pop("processes", 1)) < 1:
        raise InputError(f"processes is {processes}; it must be at least 1")
    others = models_of(searching)
    if input == output == "-" and sys.stdin.isatty() and sys.stdout.isatty():
        if searching.get("target_prefixes", "-") != "-":
            raise InputError("target_prefixes is a file, and the lines come from the terminal; give --input")
        translator = load_translator(model, others, trust_remote_code=trust_remote_code)
        converse(lambda lines: with_target_prefixes(lines, searching), partial(work, translator), written)
        return
    total = None if input == "-" else count_lines(Path(input))
    request = {"model": texts.place_of(model), "input": input, "num_beams": num_beams, "prefix": prefix}
    request |= {"length_penalty": length_penalty, **searching}
    with ExitStack() as stack:
        if processes > 1:
            places = [texts.place_of(name) for name in (model, *others)]
            for place in places:  # before there is anything
                check_task(load_config(place, trust_remote_code=trust_remote_code), "translation", place)
            pool = TranslationProcesses(places[0], processes, places[1:], trust_remote_code=trust_remote_code)
            translate_window = partial(stack.enter_context(pool).do, work, show_progress=False)
        else:
            translate_window = partial(work, load_translator(model, others, trust_remote_code=trust_remote_code))
        file = write_to(output, request, overwrite, files_of(searching), record_of(searching))
        stack.enter_context(file)
        source = lines_of_standard_input() if input == "-" else lines_of_file(Path(input))
        lines = stack.enter_context(closing(ReadAhead(with_target_prefixes(source, searching))))
        skip(lines, file.done, output)
        translate_lines(translate_window, lines, written, file, total, is_shown=output != "-")


def translate_lines(
    translate_window: "Callable[[Sequence[str], Notes], Sequence[Any]]",
    lines: "ReadAhead",
    written: "Written",
    file: "OutputFile | StandardOutput",
    total: int | None,
    *,
    is_shown: bool,
    described: str = "translate",
    unit: str = " lines",
) -> None:
    """Writes what is made of the lines, and says what had to be done with them.

    Args:
        translate_window, lines, written: as `translate_stream` takes them.
        file: where it is written.
        total: lines that there are, if that is known.
        is_shown: whether a bar shows how far it is, wherever the lines go.
        described, unit: what the bar says.
    """
    from ..training.console.progress import ProgressBar, is_first_process, say
    from ..translation.streaming import translate_stream

    noted = 0

    def note(number: int, what: str) -> None:
        nonlocal noted
        noted += 1
        if noted <= NOTES_SHOWN:
            say(f"line {number:,}: {what}")

    is_shown = is_shown or not sys.stdout.isatty()  # or else the lines themselves show how far it is
    bar = ProgressBar(
        total=total,
        initial=file.done,
        desc=described,
        unit=unit,
        disable=not (is_shown and is_first_process()),
    )
    with bar:
        for outputs in translate_stream(translate_window, lines, note, written):
            file.write(outputs)
            bar.update(len(outputs))
    if noted > NOTES_SHOWN:
        say(f"{noted:,} such notes in all")


def _translate_catalogue(
    model: str,
    path: Path,
    output: str,
    fuzzy_below: float,
    overwrite: bool,
    trust_remote_code: bool,
    options: dict[str, Any],
) -> None:
    from ..training.atomic_files import replace_file
    from ..training.console.progress import say
    from ..translation.catalogues import translate_catalogue
    from ..translation.likelihood import confidences
    from ..translation.streaming import translate_texts
    from .loading import load_target_tokenizer

    if not 0 <= fuzzy_below <= 1:
        raise InputError(f"fuzzy_below is {fuzzy_below}; it must be a probability from 0 to 1")
    if output != "-" and Path(output).exists() and not overwrite:
        raise InputError(f"{output} is there already; give another --output, or --overwrite true")
    loaded, tokenizer = texts.load_given(model, "translation", None, trust_remote_code)
    target_tokenizer = load_target_tokenizer(loaded)

    def translated(sources: Sequence[str]) -> list[str]:
        def note(index: int, what: str) -> None:
            say(f"{sources[index][:40]!r}...: {what}")

        return translate_texts(loaded, tokenizer, sources, note, target_tokenizer=target_tokenizer, **options)

    def sure(sources: Sequence[str], translations: Sequence[str]) -> list[float]:
        prefixed = [options["prefix"] + source for source in sources]
        return confidences(loaded, tokenizer, target_tokenizer, prefixed, translations)

    result = translate_catalogue(path, translated, sure, fuzzy_below)
    if output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(result.content)  # in the encoding that its header names
    else:
        replace_file(Path(output), result.content)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(result.fuzzy.items()))
    say(
        f"{result.filled:,} messages translated, {sum(result.fuzzy.values()):,} of them marked as fuzzy"
        + (f" ({reasons})" if reasons else "")
        + f"; {result.kept:,} left as they were"
    )


def write_to(
    name: str,
    request: dict[str, Any],
    overwrite: bool,
    others: Mapping[str, Sequence[str]] = {},
    record_of: "RecordOf | None" = None,
) -> "OutputFile | StandardOutput":
    """Where lines go.

    Args:
        request: what decides about them; of the files that it names, which they were is kept as well.
        others: the names of further files, or of models' folders.
        record_of: as `OutputFile` takes it.
    """
    from ..translation.line_output import OutputFile, StandardOutput

    if name == "-":
        return StandardOutput()
    named = {"model": [request["model"]], "input": [request["input"]], **others}
    files = {what: [stamp for path in paths for stamp in _stamp(Path(path))] for what, paths in named.items()}
    return OutputFile(Path(name), request | {"files": files}, overwrite=overwrite, record_of=record_of)


def _stamp(path: Path) -> list[list[Any]]:
    """Name, size and time of a file, or of the weights in a folder; nothing of what lies elsewhere."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    return [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def skip(lines: "ReadAhead", count: int, output: str) -> None:
    """Passes over lines that an earlier command has translated."""
    while count > 0:
        passed = len(lines.take(count))
        if not passed:
            raise InputError(f"{output}.part has more lines than there are to translate; --overwrite true begins anew")
        count -= passed
