"""Commands that use a finished model on text: translate, continue a text."""

import sys
from pathlib import Path

from ..api import texts


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
