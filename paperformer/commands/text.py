"""Commands that use a finished model on text: translate, continue a text."""

import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..api import texts
from ..training.console.input_error import InputError

if TYPE_CHECKING:
    from ..translation.line_output import OutputFile, StandardOutput
    from ..translation.line_source import ReadAhead

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
    engine: Literal["torch", "ctranslate2", "onnx"] = "torch",
    trust_remote_code: bool = False,
) -> None:
    """Translate text line by line: a line out for each line in, in order, whatever comes in.

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
        engine: What computes; MODEL is an export for it, or a model's folder, of which a cache then has an export.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..training.console.progress import ProgressBar, is_first_process, say
    from ..training.data.text.files import without_compression
    from ..training.data.text.lines import count_lines
    from ..translation.line_source import ReadAhead, lines_of_file, lines_of_standard_input
    from ..translation.streaming import translate_stream, translate_texts
    from .loading import load_target_tokenizer

    texts.check_beams(num_beams)
    decoding: dict[str, Any] = {"num_beams": num_beams, "length_penalty": length_penalty, "prefix": prefix}
    if without_compression(Path(input)).suffix in (".po", ".pot"):
        if engine != "torch":
            raise InputError(f"--engine {engine} is for lines; a catalogue needs torch, which says how sure it is")
        _translate_catalogue(model, Path(input), output, fuzzy_below, overwrite, trust_remote_code, decoding)
        return
    total = None if input == "-" else count_lines(Path(input))
    loaded, tokenizer = texts.load_given(model, "translation", None, trust_remote_code, engine)
    target_tokenizer = load_target_tokenizer(loaded)
    translate_window = partial(
        translate_texts, loaded, tokenizer, target_tokenizer=target_tokenizer, show_progress=False, **decoding
    )
    noted = 0

    def note(number: int, what: str) -> None:
        nonlocal noted
        noted += 1
        if noted <= NOTES_SHOWN:
            say(f"line {number:,}: {what}")

    request = {"model": texts.place_of(model), "input": input, "engine": engine, **decoding}
    with _write_to(output, request, overwrite) as written:
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
    if noted > NOTES_SHOWN:
        say(f"{noted:,} such notes in all")


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


def _write_to(name: str, request: dict[str, Any], overwrite: bool) -> "OutputFile | StandardOutput":
    from ..translation.line_output import OutputFile, StandardOutput

    if name == "-":
        return StandardOutput()
    files = {what: _stamp(Path(request[what])) for what in ("model", "input")}
    return OutputFile(Path(name), request | {"files": files}, overwrite=overwrite)


def _stamp(path: Path) -> list[list[Any]]:
    """Name, size and time of a file, or of the weights in a folder; nothing of what lies elsewhere."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    return [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _skip(lines: "ReadAhead", count: int, output: str) -> None:
    """Passes over lines that an earlier command has translated."""
    while count > 0:
        passed = len(lines.take(count))
        if not passed:
            raise InputError(f"{output}.part has more lines than there are to translate; --overwrite true begins anew")
        count -= passed
