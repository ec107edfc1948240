"""What becomes of inline elements in a translation: taken out and put back, as `paperformer translate` does it in XLIFF
and TMX, beside marks that the model is to copy, and segments that are translated alone.

One pair of elements is around one or two words of each sentence. Measured are the pairs that are kept, in their order,
and BLEU of the text without them. Then a pair is around one noun that nearly always has the same translation, and is
measured how often that is inside the pair in the translation as well, of the sentences whose translation has it once.
"""

import argparse
import platform
import random
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

import paperformer
from paperformer.commands.loading import load
from paperformer.training.engine.devices.hardware import describe_hardware
from paperformer.training.evaluation.metrics import score_outputs
from paperformer.translation.formats.marked_text import AlignedText, Code, MarkedText, Token

RESULTS = Path(__file__).parent / "results" / "inline_elements.md"
MARKS = [
    ('<g id="1">', "</g>"), ("<1>", "</1>"), ("{1}", "{2}"), ("[1]", "[2]"), ("%1", "%2"), ("X1", "X2"), ("11", "12"),
]  # fmt: skip
NOUNS = {
    "man": "mann", "woman": "frau", "dog": "hund", "boy": "junge", "girl": "mädchen", "beach": "strand",
    "water": "wasser", "street": "straße", "ball": "ball", "child": "kind", "snow": "schnee", "building": "gebäude",
}  # fmt: skip
OPEN, CLOSE = Code("<g>", "open"), Code("</g>", "close")

Translate = Callable[[Sequence[str]], list[str]]
Align = Callable[[Sequence[str], Sequence[str]], Sequence[Sequence[tuple[int, int]]]]
Parts = tuple[str, str, str]


def choose_spans(sentences: Sequence[str], seed: int) -> list[Parts]:
    """What is before, inside and behind the elements."""
    generator, found = random.Random(seed), []
    for sentence in sentences:
        words = sentence.split()
        start = generator.randint(1, max(1, len(words) - 3))
        end = min(len(words) - 1, start + generator.randint(1, 2))
        found.append((" ".join(words[:start]), " ".join(words[start:end]), " ".join(words[end:])))
    return found


def with_marks(translate: Translate, spans: Sequence[Parts], marks: tuple[str, str]) -> tuple[int, list[str]]:
    """How many pairs are kept, and the texts without them."""
    first, second = marks
    outputs = translate([f"{before} {first} {inside} {second} {behind}" for before, inside, behind in spans])
    pair = re.compile(f"{re.escape(first)}.*{re.escape(second)}")
    kept = sum(bool(pair.search(output)) and output.count(first) == output.count(second) == 1 for output in outputs)
    texts = [" ".join(output.replace(first, "").replace(second, "").split()) for output in outputs]
    return kept, [re.sub(r"\s+([.,])", r"\1", text) for text in texts]


def place_nouns(translate: Translate, align: Align, sentences: Sequence[str]) -> tuple[int, int, int]:
    """Of how many nouns the translation is inside the elements: in proportion, by alignment; and how many there are."""
    texts: list[MarkedText] = []
    expected = []
    for sentence in sentences:
        noun = next((noun for noun in NOUNS if re.search(rf"\b{noun}\b", sentence)), None)
        if noun is not None:
            before, behind = re.split(rf"\b{noun}\b", sentence, maxsplit=1)
            texts.append(MarkedText([before, OPEN, noun, CLOSE, behind]))
            expected.append(NOUNS[noun])
    in_proportion = aligned = all_in_all = 0
    lines = [marked.texts[0] for marked in texts]
    outputs = translate(lines)
    for marked, word, output, pairs in zip(texts, expected, outputs, align(lines, outputs), strict=True):
        if output.lower().count(word) == 1:
            all_in_all += 1
            in_proportion += word in inside(marked.fill([output])).lower()
            aligned += word in inside(marked.fill([AlignedText(output, pairs)])).lower()
    return in_proportion, aligned, all_in_all


def inside(tokens: Sequence[Token]) -> str:
    """What is between the elements."""
    return "".join(map(str, tokens[tokens.index(OPEN) + 1 : tokens.index(CLOSE)]))


def measure(options: argparse.Namespace) -> str:
    sources = Path(options.source).read_text("utf-8").splitlines()[: options.sentences]
    references = Path(options.target).read_text("utf-8").splitlines()[: options.sentences]
    model, tokenizer = load(options.model, "translation")
    spans = choose_spans(sources, options.seed)
    rows: list[str] = []

    def translate(texts: Sequence[str]) -> list[str]:
        return paperformer.translate(model, texts, tokenizer=tokenizer)

    def report(way: str, kept: int, texts: Sequence[str]) -> None:
        bleu = score_outputs(texts, [references], resamples=0)[0]
        rows.append(f"| {way} | {kept / len(spans):.1%} | {bleu.value:.1f} |")
        print(rows[-1], flush=True)

    report("taken out and put back", len(spans), translate([" ".join(span) for span in spans]))
    parts = translate([part for span in spans for part in span])
    report("borders of segments", len(spans), [" ".join(parts[at : at + 3]) for at in range(0, len(parts), 3)])
    for marks in MARKS:
        report(" and ".join(f"`{mark}`" for mark in marks), *with_marks(translate, spans, marks))

    def align(lines: Sequence[str], outputs: Sequence[str]) -> Sequence[Sequence[tuple[int, int]]]:
        return paperformer.align(model, lines, outputs, tokenizer=tokenizer)

    right, aligned, all_in_all = place_nouns(translate, align, sources)
    rows.append(
        f"\nOf {all_in_all} nouns, {aligned} ({aligned / all_in_all:.0%}) are inside the pair in the translation if "
        f"it is placed by the model's attention, and {right} ({right / all_in_all:.0%}) if it is placed in proportion."
    )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder of a trained model, English to German")
    parser.add_argument("--source", required=True, help="file of English sentences")
    parser.add_argument("--target", required=True, help="file of their German translations")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = measure(options)
    names = ("paperformer", "torch", "transformers")
    lines = [
        "# Inline elements in translations",
        "",
        (__doc__ or "").strip(),
        "",
        f"- Command: `python benchmarks/inline_elements.py {shlex.join(sys.argv[1:])}`",
        f"- Date: {datetime.now(UTC).date()}",
        f"- Hardware: {describe_hardware()}",
        f"- Software: Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in names)}",
        f"- Decoding: five beams, seed of the spans {options.seed}, threads {torch.get_num_threads()}",
        "",
        "| elements are | pairs kept | BLEU of the text |",
        "|---|---:|---:|",
        rows,
    ]
    RESULTS.write_text("\n".join(lines) + "\n", "utf-8")
    print(RESULTS)


if __name__ == "__main__":
    main()
