"""Commands that use a finished model on text: translate, continue a text."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..api import texts
from ..training.console.input_error import InputError
from ..translation.formats.names import FormatName, FormatOptions

if TYPE_CHECKING:
    from ..translation.checking import Translate
    from ..translation.line_output import OutputFile, StandardOutput
    from ..translation.line_source import ReadAhead


def translate(
    model: str,
    input: str = "-",  # noqa: A002
    output: str = "-",
    num_beams: int = 5,
    length_penalty: float = 1.0,
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
    overwrite: bool = False,
    trust_remote_code: bool = False,
) -> None:
    """Translate text line by line: a line out for each line in, in order, whatever comes in.

    Files of localisation are translated as such, the same file with translations in it: message catalogues (.po, .pot)
    and XLIFF (.xlf, .xliff), of which what was untranslated is filled in, translation memories (.tmx), tables (.tsv,
    .csv) and JSON Lines (.jsonl).

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
        format: What the input is; by its name if not given, and text if that says nothing.
        column: Of a table, the column to translate: its name in the header, or its number from 1 if there is none.
        header: Whether a table's first row names the columns; if not given, where COLUMN is no number.
        field: Of JSON Lines, the field to translate; a.b is the field b of the object a.
        into: Column or field for the translations, which is added or written over; `translation` if not given.
        source_language: Code of the language that is translated, in a translation memory that does not say it.
        target_language: Code of the language that is translated into, in a translation memory, or in XLIFF that does
            not say it.
        check: Tell of each line of text whose translation has other placeholders, tags or numbers; of the other formats
            it is always told.
        fuzzy_below: A catalogue's message is marked as fuzzy where the mean probability of its tokens is less than
            that, from 0 to 1; and in any case where placeholders, tags or numbers are others.
        overwrite: Replace OUTPUT, and what an interrupted command has left of it.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..translation.formats.file_formats import find_format

    texts.check_beams(num_beams)
    options = FormatOptions(column, header, field, into, source_language, target_language)
    found = find_format(input, format, options)
    decoding: dict[str, Any] = {"num_beams": num_beams, "length_penalty": length_penalty, "prefix": prefix}
    if found == "gettext":
        _translate_catalogue(model, input, output, fuzzy_below, overwrite, trust_remote_code, decoding)
    elif found == "text":
        _translate_lines(model, input, output, check, overwrite, trust_remote_code, decoding)
    else:
        _translate_records(model, input, output, found, options, overwrite, trust_remote_code, decoding)


def _translate_lines(
    model: str,
    input: str,  # noqa: A002
    output: str,
    check: bool,
    overwrite: bool,
    trust_remote_code: bool,
    decoding: dict[str, Any],
) -> None:
    from ..training.console.progress import ProgressBar, is_first_process
    from ..training.data.text.lines import count_lines
    from ..translation.checking import checked
    from ..translation.line_source import ReadAhead, lines_of_file, lines_of_standard_input
    from ..translation.streaming import translate_stream
    from .translated_files import NotesOfLines

    total = None if input == "-" else count_lines(Path(input))
    translate_window = _load_translator(model, trust_remote_code, decoding)
    if check:
        translate_window = checked(translate_window)
    note = NotesOfLines()
    with _write_to(output, {"model": texts.place_of(model), "input": input, **decoding}, overwrite) as written:
        lines = ReadAhead(lines_of_standard_input() if input == "-" else lines_of_file(Path(input)))
        _skip(lines, written.done, output)
        is_shown = output != "-" or not sys.stdout.isatty()  # or else the lines themselves show how far it is
        bar = ProgressBar(
            total=total,
            initial=written.done,
            desc="translate",
            unit=" lines",
            disable=not (is_shown and is_first_process()),
        )
        with bar, closing(lines):
            for translations in translate_stream(translate_window, lines, note):
                written.write(translations)
                bar.update(len(translations))
    note.close()


def _translate_records(
    model: str,
    input: str,  # noqa: A002
    output: str,
    found: FormatName,
    options: FormatOptions,
    overwrite: bool,
    trust_remote_code: bool,
    decoding: dict[str, Any],
) -> None:
    from ..translation.formats.record_output import RecordFile, RecordOutput
    from .translated_files import translate_file

    def open_output() -> RecordFile | RecordOutput:
        if output == "-":
            return RecordOutput()
        request = {"model": texts.place_of(model), "input": input, **decoding, "format": found, **asdict(options)}
        return RecordFile(Path(output), _with_files(request), overwrite=overwrite)

    load = partial(_load_translator, model, trust_remote_code, decoding)
    translate_file(load, input, found, options, open_output, partial(_skip, output=output))


def _load_translator(model: str, trust_remote_code: bool, decoding: dict[str, Any]) -> "Translate":
    """What translates some texts, and notes those that are too long for the model."""
    from ..translation.streaming import translate_texts
    from .loading import load_target_tokenizer

    loaded, tokenizer = texts.load_given(model, "translation", None, trust_remote_code)
    target_tokenizer = load_target_tokenizer(loaded)
    return partial(
        translate_texts, loaded, tokenizer, target_tokenizer=target_tokenizer, show_progress=False, **decoding
    )


def generate(
    model: str,
    prompt: str,
    max_new_tokens: int = 200,
    temperature: float = 0.9,
    top_p: float = 0.95,
    seed: int = 1,
    trust_remote_code: bool = False,
) -> None:
    """Continue a text by nucleus sampling, to standard output.

    Args:
        model: A language model's folder, or its name on the Hub.
        prompt: The text to continue.
        max_new_tokens: Longest continuation, in tokens.
        temperature: Divides the logits: below 1 safer, above 1 wilder; 0 takes the likeliest token (greedy).
        top_p: Sample from the smallest set of tokens that has this probability (Holtzman et al. 2019).
        seed: Seed of the sampling.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    print(texts.generate(model, prompt, max_new_tokens, temperature, top_p, seed, trust_remote_code=trust_remote_code))


def _translate_catalogue(
    model: str,
    input: str,  # noqa: A002
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
    from ..translation.line_output import refuse_compression, standard_output
    from ..translation.streaming import translate_texts
    from .loading import load_target_tokenizer

    if input == "-":
        raise InputError("a message catalogue is read as a whole; give it as a file: --input")
    if not 0 <= fuzzy_below <= 1:
        raise InputError(f"fuzzy_below is {fuzzy_below}; it must be a probability from 0 to 1")
    refuse_compression(Path(output))
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

    result = translate_catalogue(Path(input), translated, sure, fuzzy_below)
    if output == "-":
        with standard_output():
            sys.stdout.buffer.write(result.content)  # in the encoding that its header names
    else:
        replace_file(Path(output), result.content)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(result.fuzzy.items()))
    say(
        f"{result.filled:,} messages translated, {sum(result.fuzzy.values()):,} of them marked as fuzzy"
        + (f" ({reasons})" if reasons else "")
        + f"; {result.kept:,} left as they were"
    )


def _write_to(name: str, request: dict[str, Any], overwrite: bool) -> "OutputFile | StandardOutput":
    from ..translation.line_output import OutputFile, StandardOutput

    if name == "-":
        return StandardOutput()
    return OutputFile(Path(name), _with_files(request), overwrite=overwrite)


def _with_files(request: dict[str, Any]) -> dict[str, Any]:
    return request | {"files": {what: _stamp(Path(request[what])) for what in ("model", "input")}}


def _stamp(path: Path) -> list[list[Any]]:
    """Name, size and time of a file, or of the weights in a folder; nothing of what lies elsewhere."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    return [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _skip(lines: "ReadAhead[Any]", count: int, output: str) -> None:
    """Passes over lines that an earlier command has translated."""
    while count > 0:
        passed = len(lines.take(count))
        if not passed:
            raise InputError(f"{output}.part has more lines than there are to translate; --overwrite true begins anew")
        count -= passed
