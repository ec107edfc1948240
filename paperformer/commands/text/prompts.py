"""The command that continues texts: one, several, or those of a file or a pipe of any size."""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...api import texts
from ...training.console.input_error import InputError
from ..loading import Dtype
from .written_lines import skip, work_on_lines, write_to

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ...decoding.continuations import Continuation, Sampling
    from ...translation.cutting import Notes
    from ...translation.line_source import Line


def generate(
    model: str,
    prompt: tuple[str, ...],
    input: str = "-",  # noqa: A002
    input_format: Literal["text", "jsonl"] | None = None,
    output: str = "-",
    max_new_tokens: int = 200,
    temperature: float = 0.9,
    top_p: float = 0.95,
    top_k: int = 0,
    repetition_penalty: float = 1.0,
    num_sequences: int = 1,
    stop: str | list[str] = [],  # noqa: B006 - read only
    seed: int = 1,
    dtype: Dtype | None = None,
    overwrite: bool = False,
    trust_remote_code: bool = False,
) -> None:
    """Continue texts by nucleus sampling: a prompt, to standard output, or a file or a pipe of prompts.

    A prompt that is given is printed with its continuation; in a terminal as it is written. Without one, every line of
    INPUT is a prompt, and a line of JSON is written for each, in order: {"prompt": ..., "continuations": [...]}. What
    is written depends on the prompt, the seed and the other options, not on the prompts beside it.

    Args:
        model: A language model's folder, its name on the Hub, or shakespeare, which comes with paperformer.
        prompt: The text to continue, or several. Without any, INPUT is read.
        input: File of prompts, perhaps compressed; - reads standard input.
        input_format: What its lines are, text (a prompt each) or jsonl (a JSON string each, or an object with "prompt",
            of which all else is handed on). By default jsonl where the name ends so.
        output: File for the lines of JSON; - writes standard output. It is FILE.part until it is complete; the same
            command goes on where it was interrupted.
        max_new_tokens: Longest continuation, in tokens.
        temperature: Divides the logits: below 1 safer, above 1 wilder; 0 takes the likeliest token (greedy).
        top_p: Sample from the smallest set of tokens that has this probability (Holtzman et al. 2019).
        top_k: Sample from so many likeliest tokens (Fan et al. 2018); 0 from all.
        repetition_penalty: Divides the logits of tokens that were there, if positive, or else multiplies them (Keskar
            et al. 2019); 1 changes nothing.
        num_sequences: How many continuations of each prompt.
        stop: Text before which a continuation ends; or several, '["\\n\\n",END]'.
        seed: Seed of the sampling.
        dtype: What the model is computed in: float32, bfloat16, or on a CPU int8, which paperformer check --dtype
            compares with float32; by default as its weights are stored.
        overwrite: Replace OUTPUT, and what an interrupted command has left of it.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ...decoding.continuations import Sampling

    sampling = Sampling(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        repetition_penalty=repetition_penalty,
        num_sequences=num_sequences,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        seed=seed,
    )
    if prompt:
        if input != "-" or output != "-":
            raise InputError(
                "a prompt is given, and --input or --output, which are for prompts of a file; leave out one"
            )
        loaded = texts.load_given(model, "text-generation", None, trust_remote_code, dtype=dtype)
        _print_continued(*loaded, prompt, sampling)
        return
    if input == "-" and sys.stdin.isatty():
        raise InputError("there is no prompt; give one behind the model, or a file of prompts: --input FILE")
    is_json = (input_format or ("jsonl" if ".jsonl" in Path(input).suffixes else "text")) == "jsonl"
    request = {"model": texts.place_of(model), "input": input, "format": is_json, **vars(sampling)}
    request |= {} if dtype is None else {"dtype": dtype}
    _continue_lines(model, request | {"stop": list(sampling.stop)}, output, sampling, overwrite, trust_remote_code)


def _continue_lines(
    model: str, request: dict[str, Any], output: str, sampling: "Sampling", overwrite: bool, trust_remote_code: bool
) -> None:
    from ...decoding.continuations import continue_prompts
    from ...training.data.text.lines import count_lines
    from ...translation.line_source import ReadAhead, lines_of_file, lines_of_standard_input

    name, is_json = request["input"], request["format"]
    called = "standard input" if name == "-" else name
    total = None if name == "-" else count_lines(Path(name))
    dtype = request.get("dtype")
    loaded, tokenizer = texts.load_given(model, "text-generation", None, trust_remote_code, dtype=dtype)

    def work(lines: "Sequence[str]", note: "Notes") -> "list[tuple[dict[str, Any], list[Continuation]]]":
        records = [json.loads(line) for line in lines]
        found = continue_prompts(loaded, tokenizer, [record["prompt"] for record in records], sampling, note)
        return list(zip(records, found, strict=True))

    def written(number: int, result: "tuple[dict[str, Any], list[Continuation]]") -> str:
        record, found = result
        return json.dumps(record | {"continuations": [each.text for each in found]}, ensure_ascii=False)

    source = lines_of_standard_input() if name == "-" else lines_of_file(Path(name))
    with (
        write_to(output, request, overwrite) as file,
        closing(ReadAhead(_as_record(line, called, is_json=is_json) for line in source)) as lines,
    ):
        skip(lines, file.done, output)
        is_shown = output != "-"
        work_on_lines(work, lines, written, file, total, is_shown=is_shown, described="continue", unit=" prompts")


def _as_record(line: "Line", name: str, *, is_json: bool) -> "Line":
    """A line whose text is JSON with a "prompt".

    Raises:
        InputError: if a line that is to be JSON is none, or has no prompt.
    """
    from dataclasses import replace

    record: Any = line.text
    if is_json:
        try:
            record = json.loads(line.text)
        except ValueError as error:
            raise InputError(f"{name}, line {line.number:,} is no JSON: {error}") from error
    if isinstance(record, str):
        record = {"prompt": record}
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):
        raise InputError(
            f'{name}, line {line.number:,} has no "prompt"; it must be a JSON string, or an object with one'
        )
    return replace(line, text=json.dumps(record))


def _print_continued(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[str], sampling: "Sampling"
) -> None:
    """Prints prompts with their continuations; a single one, in a terminal, token by token."""
    from transformers import TextStreamer

    from ...decoding.continuations import continue_prompts
    from ...training.console.progress import say

    def note(index: int, what: str) -> None:
        say(f"prompt {index + 1}: {what}")

    # What it is to stop at would be shown before it is known.
    is_streamed = sys.stdout.isatty() and len(prompts) == sampling.num_sequences == 1 and not sampling.stop
    if is_streamed:
        streamer = TextStreamer(tokenizer, skip_special_tokens=True)
        continue_prompts(model, tokenizer, prompts, sampling, note, streamer=streamer)
        return
    found = continue_prompts(model, tokenizer, prompts, sampling, note)
    blocks = [each.prompt + each.text for continuations in found for each in continuations]
    print("\n\n".join(blocks))
