"""Commands that use a finished model on text: translate, score translations, continue a text."""

import sys
from pathlib import Path
from typing import Any

from ..api import texts
from ..training.console.input_error import InputError


def evaluate(
    model: str,
    source: str,
    reference: str,
    num_beams: int = 5,
    length_penalty: float = 1.0,
    metrics: list[str] | None = None,
    trust_remote_code: bool = False,
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
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    import json

    from ..training.evaluation.evaluation_file import fields_of
    from ..training.evaluation.metrics import score_outputs

    texts.check_beams(num_beams)
    sources, references = _read_parallel(Path(source), Path(reference))
    more = {name: _load_metric(name) for name in metrics or []}
    hypotheses = texts.translate(model, sources, num_beams, length_penalty, trust_remote_code=trust_remote_code)
    scores = fields_of(score_outputs(hypotheses, references))
    scores |= {name: metric.compute(predictions=hypotheses, references=references) for name, metric in more.items()}
    print(json.dumps(scores, indent=2, default=float))


def translate(
    model: str,
    input: str = "-",  # noqa: A002
    num_beams: int = 5,
    length_penalty: float = 1.0,
    trust_remote_code: bool = False,
) -> None:
    """Translate text line by line, to standard output.

    Args:
        model: A translation model's folder, or its name on the Hub.
        input: File to translate, one sentence a line; - reads standard input.
        num_beams: Beam size; 1 is greedy and fastest.
        length_penalty: Exponent of the length by which a beam's score is divided.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..training.data.text.lines import blocks, decode_lines, read_lines

    texts.check_beams(num_beams)
    is_piped = input == "-"
    read = decode_lines(blocks(sys.stdin.buffer), "standard input") if is_piped else read_lines(Path(input))
    lines = [line for line in read if line is not None]  # it would be a line left out; here such a line is an error
    for line in texts.translate(model, lines, num_beams, length_penalty, trust_remote_code=trust_remote_code):
        print(line)


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


def _load_metric(name: str) -> Any:
    """A metric of the evaluate library; its own are scripts on the Hub, so most need the network once."""
    from evaluate import load as load_metric

    try:
        return load_metric(name)
    except (OSError, ImportError, ValueError) as error:
        raise InputError(f"--metrics: {name} cannot be loaded: {str(error).strip().splitlines()[0]}") from error
