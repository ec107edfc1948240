"""Time to train a tokenizer beside the bare tokenizers library: `python benchmarks/tokenizer_training.py`.

For each algorithm, `train_tokenizer` and the library's own trainer with the same vocabulary size, minimum frequency,
normaliser and pre-tokeniser, on the same texts. They take turns in one process, which of them first by turns, so that
whatever else the machine does meets both; the figure is the median over rounds of the ratio within a round.

What the library does not do is part of our time: checks, counting characters, byte fallback of rare ones, a vocabulary
that is the same each time, and the wrapping for transformers.
"""

import argparse
import gc
import lzma
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from importlib.metadata import version
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import train_tokenizer
from paperformer.tokenization.algorithms import AlgorithmName

RESULTS = Path(__file__).parent / "results" / "tokenizer_training.md"
REPEATS = 3  # of the default text, which is small
MIN_FREQUENCY = 2
SPECIAL_TOKENS = ["<pad>", "<s>", "</s>", "<unk>"]


@dataclass(frozen=True)
class Bare:
    """What the library has for an algorithm."""

    model: Callable[[], models.Model]
    trainer: Callable[[int], trainers.Trainer]
    """Takes the size of the vocabulary."""
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None
    """Where it is not that of `train_tokenizer`."""


def bpe_trainer(vocab_size: int, alphabet: list[str]) -> trainers.Trainer:
    return trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=alphabet,
        show_progress=False,
    )


BARE: dict[AlgorithmName, Bare] = {
    "byte_bpe": Bare(models.BPE, lambda size: bpe_trainer(size, pre_tokenizers.ByteLevel.alphabet())),
    "bpe": Bare(models.BPE, lambda size: bpe_trainer(size - 256, [])),
    "unigram": Bare(
        models.Unigram,
        lambda size: trainers.UnigramTrainer(
            vocab_size=size - 256, special_tokens=SPECIAL_TOKENS, unk_token="<unk>", show_progress=False
        ),
    ),
    "wordpiece": Bare(
        models.WordPiece,
        lambda size: trainers.WordPieceTrainer(
            vocab_size=size, min_frequency=MIN_FREQUENCY, special_tokens=SPECIAL_TOKENS, show_progress=False
        ),
    ),
    "characters": Bare(
        models.WordLevel,
        lambda size: trainers.WordLevelTrainer(
            vocab_size=size, min_frequency=MIN_FREQUENCY, special_tokens=SPECIAL_TOKENS, show_progress=False
        ),
        pre_tokenizers.Split(Regex(r"(?m:.)"), behavior="isolated"),
    ),
}


def train_bare(algorithm: AlgorithmName, texts: list[str], vocab_size: int, like: PreTrainedTokenizerFast) -> Tokenizer:
    """Train with the library alone, and with the normaliser and pre-tokeniser of ours."""
    bare = BARE[algorithm]
    tokenizer = Tokenizer(bare.model())
    if like.backend_tokenizer.normalizer is not None:
        tokenizer.normalizer = like.backend_tokenizer.normalizer
    tokenizer.pre_tokenizer = bare.pre_tokenizer or like.backend_tokenizer.pre_tokenizer
    tokenizer.train_from_iterator(texts, trainer=bare.trainer(vocab_size), length=len(texts))
    return tokenizer


def measure(algorithm: AlgorithmName, texts: list[str], vocab_size: int, rounds: int) -> str:
    """A row of the table."""
    ours = train_tokenizer(
        texts, vocab_size, append_eos=True, algorithm=algorithm, min_frequency=MIN_FREQUENCY, show_progress=False
    )
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: train_tokenizer(
            texts, vocab_size, append_eos=True, algorithm=algorithm, min_frequency=MIN_FREQUENCY, show_progress=False
        ),
        "bare": lambda: train_bare(algorithm, texts, vocab_size, ours),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs)[:: 1 if turn % 2 else -1]:
            gc.collect()
            start = time.perf_counter()
            runs[name]()
            seconds[name].append(time.perf_counter() - start)
    ratios = [a / b for a, b in zip(seconds["ours"], seconds["bare"], strict=True)]
    figure = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"{algorithm}: {figure}", file=sys.stderr)
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    return f"| {algorithm} | {len(ours):,} | {middle['ours']:.2f} | {middle['bare']:.2f} | {figure} |"


def read_texts(files: list[Path]) -> tuple[list[str], str]:
    """The texts, a line each, and what to call them."""
    if files:
        lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
        return lines, ", ".join(file.name for file in files)
    packed = resources.files("paperformer.training.data.built_in").joinpath("shakespeare.txt.xz").read_bytes()
    lines = lzma.decompress(packed).decode().splitlines()
    return lines * REPEATS, f"Shakespeare's plays, as they come with paperformer, {REPEATS} times over"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=Path, nargs="+", default=[], help="texts, one a line (default: Shakespeare)")
    parser.add_argument("--vocab-size", type=int, default=8000, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default: %(default)s)")
    parser.add_argument("--algorithms", nargs="+", choices=list(BARE), default=list(BARE), help="default: all")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    texts, name = read_texts(options.files)
    rows = [measure(algorithm, texts, options.vocab_size, options.rounds) for algorithm in options.algorithms]
    size = sum(len(text.encode()) for text in texts) / 1e6
    command = shlex.join(["python", "benchmarks/tokenizer_training.py", *sys.argv[1:]])
    versions = ", ".join(f"{package} {version(package)}" for package in ("paperformer", "tokenizers", "transformers"))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        "\n".join(
            [
                "# Training a tokenizer",
                "",
                "`train_tokenizer` beside the tokenizers library alone, with the same trainer settings, normaliser and "
                "pre-tokeniser,",
                f"taking turns in one process, {options.rounds} rounds. The ratio is the median over rounds, with the "
                "lowest and the highest.",
                "Characters are counted without the library; there it is compared with a `WordLevel` of characters.",
                "",
                f"- Text: {name}; {len(texts):,} lines, {size:.1f} MB",
                f"- Command: `{command}`",
                f"- Date: {datetime.now(UTC):%Y-%m-%d}",
                f"- Hardware: {platform.machine()}, {os.cpu_count()} processors (load average before: {load:.1f})",
                f"- Software: Python {platform.python_version()}, {versions}",
                "",
                "| algorithm | tokens | train_tokenizer, s | library alone, s | ratio |",
                "|---|---|---|---|---|",
                *rows,
                "",
            ]
        ),
        encoding="utf-8",
    )
    print(f"Written to {RESULTS}")


if __name__ == "__main__":
    main()
