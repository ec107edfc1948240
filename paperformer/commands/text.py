"""Commands that use a finished model on text: translate, score translations, continue a text."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..training.console.input_error import InputError
from .loading import load, load_target_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def evaluate(
    model: str,
    source: str,
    reference: str,
    num_beams: int = 5,
    length_penalty: float = 1.0,
    metrics: list[str] | None = None,
) -> None:
    """Translate a file and score the translations against references: sacreBLEU and chrF with signatures, exact match.

    Args:
        model: A translation model's folder, or its name on the Hub.
        source: File to translate, one sentence a line.
        reference: File of reference translations, line by line those of the source; raw text.
        num_beams: Beam size.
        length_penalty: Exponent of the length by which a beam's score is divided.
        metrics: More metrics of the evaluate library, by their names on the Hub or the paths of metric scripts.
            Example: '[meteor,ter]'.
    """
    import json

    from ..training.evaluation.evaluation_file import fields_of
    from ..training.evaluation.metrics import score_outputs

    _check_beams(num_beams)
    sources, references = _read_parallel(Path(source), Path(reference))
    more = {name: _load_metric(name) for name in metrics or []}
    hypotheses = _translate(model, sources, num_beams, length_penalty)
    scores = fields_of(score_outputs(hypotheses, references))
    scores |= {name: metric.compute(predictions=hypotheses, references=references) for name, metric in more.items()}
    print(json.dumps(scores, indent=2, default=float))


def translate(model: str, input: str = "-", num_beams: int = 5, length_penalty: float = 1.0) -> None:  # noqa: A002
    """Translate text line by line, to standard output.

    Args:
        model: A translation model's folder, or its name on the Hub.
        input: File to translate, one sentence a line; - reads standard input.
        num_beams: Beam size; 1 is greedy and fastest.
        length_penalty: Exponent of the length by which a beam's score is divided.
    """
    from ..training.data.text.lines import blocks, decode_lines, read_lines

    _check_beams(num_beams)
    is_piped = input == "-"
    read = decode_lines(blocks(sys.stdin.buffer), "standard input") if is_piped else read_lines(Path(input))
    lines = [line for line in read if line is not None]  # it would be a line left out; here such a line is an error
    filled = [index for index, line in enumerate(lines) if line.strip()]
    outputs = _translate(model, [lines[index] for index in filled], num_beams, length_penalty)
    translated = dict(zip(filled, outputs, strict=True))
    for index in range(len(lines)):
        print(translated.get(index, ""))


def generate(
    model: str, prompt: str, max_new_tokens: int = 200, temperature: float = 0.9, top_p: float = 0.95, seed: int = 1
) -> None:
    """Continue a text by nucleus sampling, to standard output.

    Args:
        model: A language model's folder, or its name on the Hub.
        prompt: The text to continue.
        max_new_tokens: Longest continuation, in tokens.
        temperature: Divides the logits: below 1 safer, above 1 wilder; 0 takes the likeliest token (greedy).
        top_p: Sample from the smallest set of tokens that has this probability (Holtzman et al. 2019).
        seed: Seed of the sampling.
    """
    import torch

    from ..training.evaluation.decoding import generate as generate_ids

    if max_new_tokens < 1:
        raise InputError(f"--max_new_tokens is {max_new_tokens}; it must be at least 1")
    if temperature < 0:
        raise InputError(f"--temperature is {temperature}; it must be at least 0")
    if not 0 < top_p <= 1:
        raise InputError(f"--top_p is {top_p}; it must be greater than 0 and at most 1")
    loaded, tokenizer = load(model, "text-generation")
    torch.manual_seed(seed)
    sampling: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p}
    # In training every text begins with <s>.
    ids = [tokenizer.bos_token_id, *tokenizer(prompt, add_special_tokens=False).input_ids]
    input_ids = torch.tensor([ids], device=loaded.device)
    output = generate_ids(
        loaded,
        input_ids=input_ids,
        attention_mask=torch.ones_like(input_ids),
        max_new_tokens=max_new_tokens,
        **sampling,
    )
    print(*tokenizer.batch_decode(output, skip_special_tokens=True))


def _check_beams(num_beams: int) -> None:
    if num_beams < 1:
        raise InputError(f"--num_beams is {num_beams}; it must be at least 1")


def _read_parallel(source: Path, reference: Path) -> tuple[list[str], list[str]]:
    """The lines of two files, of which line n of one belongs to line n of the other."""
    from ..training.data.readers.parallel_files import ParallelFiles
    from ..training.data.text.bad_lines import BadLines

    sources: list[str] = []
    references: list[str] = []
    for chunk in ParallelFiles(source=source, target=reference).chunks(BadLines()):
        sources += chunk.column("source").to_pylist()
        references += chunk.column("target").to_pylist()
    return sources, references


def _translate(model: str, sources: list[str], num_beams: int, length_penalty: float) -> list[str]:
    from ..training.evaluation.decoding import translate as translate_texts

    loaded, tokenizer = load(model, "translation")
    return translate_texts(
        loaded,
        tokenizer,
        sources,
        target_tokenizer=load_target_tokenizer(loaded),
        num_beams=num_beams,
        length_penalty=length_penalty,
        max_length=_longest_input(tokenizer, loaded),
    )


def _longest_input(tokenizer: "PreTrainedTokenizerBase", model: "PreTrainedModel") -> int:
    return min(tokenizer.model_max_length, model.config.max_position_embeddings)


def _load_metric(name: str) -> Any:
    """A metric of the evaluate library; its own are scripts on the Hub, so most need the network once."""
    from evaluate import load as load_metric

    try:
        return load_metric(name)
    except (OSError, ImportError, ValueError) as error:
        raise InputError(f"--metrics: {name} cannot be loaded: {str(error).strip().splitlines()[0]}") from error
