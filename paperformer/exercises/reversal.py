"""Learning to reverse a sequence of symbols: a Transformer beside an LSTM with attention of the same size.

Both learn from the same batches in as many steps. They are tested on sequences that occur nowhere in training, of all
lengths that were trained, and of longer ones.
"""

import json
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots.figure_file import check_figure_path, save_figure
from ..plots.lines import style_axes
from ..training.console.input_error import InputError
from ..training.reporting.comparison import RunRecord
from ..training.reporting.markdown import markdown_table
from .card import Card, write_card
from .parts import forget_parts, hardware_of, minutes_of, train_part, write_texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHORTEST = 4
MODELS = {"transformer": "Transformer", "lstm": "LSTM with attention"}
FIGURE = "accuracy.svg"
SOURCE, TARGET = "forward", "backward"  # what stands for languages


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Which sequences are drawn.

    Raises:
        InputError: if there are not so many different ones.
    """

    symbols: int
    """How many different symbols there are: the first letters of the alphabet."""

    longest: int
    """Of training and validation; all lengths from `SHORTEST` are equally likely."""

    longest_tested: int
    pairs: int
    """Sequences to train on."""

    tested: int
    """Sequences of each length to test on."""

    seed: int

    def __post_init__(self) -> None:
        if not 2 <= self.symbols <= len(string.ascii_lowercase):
            raise InputError(f"--symbols is {self.symbols}; it must be from 2 to {len(string.ascii_lowercase)}")
        if not SHORTEST <= self.longest <= self.longest_tested:
            raise InputError(
                f"--longest is {self.longest} and --longest_tested {self.longest_tested}; they must be at least "
                f"{SHORTEST}, and the second no smaller than the first"
            )
        for name in ("pairs", "tested"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} is {getattr(self, name)}; it must be at least 1")
        wanted = 2 * (self.pairs + self._validated) / (self.longest - SHORTEST + 1) + self.tested
        if wanted > self.symbols**SHORTEST / 2:  # so that drawing different ones comes to an end soon
            raise InputError(
                f"there are {self.symbols**SHORTEST:,} different sequences of {SHORTEST} symbols out of "
                f"{self.symbols}, too few for --pairs {self.pairs}; give more --symbols or fewer --pairs"
            )

    @property
    def _validated(self) -> int:
        return max(20, self.pairs // 100)

    def draw(self) -> dict[str, list[str]]:
        """The sequences of each split, all of them different; those of the test by length."""
        rng = np.random.default_rng(self.seed)
        letters = np.array(list(string.ascii_lowercase[: self.symbols]))
        seen: set[str] = set()

        def different(length: int) -> str:
            while (text := "".join(rng.choice(letters, length))) in seen:
                pass
            seen.add(text)
            return text

        lengths = range(SHORTEST, self.longest_tested + 1)
        test = [different(length) for length in lengths for _ in range(self.tested)]
        trained = rng.integers(SHORTEST, self.longest, self.pairs + self._validated, endpoint=True)
        rest = [different(int(length)) for length in trained]
        return {"train": rest[self._validated :], "validation": rest[: self._validated], "test": test}


def compare_on_reversal(
    folder: Path,
    command: str,
    *,
    overwrite: bool,
    seed: int,
    symbols: int,
    longest: int,
    longest_tested: int,
    pairs: int,
    tested: int,
    learning_rate: float,
    lstm_learning_rate: float,
    **model: Any,
) -> Path:
    """Trains both models, as far as that is not done, and writes the card and its picture.

    Args:
        folder: of the exercise.
        command: for the card.
        overwrite: whether to train both anew.
        seed, symbols, longest, longest_tested, pairs, tested: the data; see `Sequences`.
        learning_rate, lstm_learning_rate: the peak of each.
        model: what else `recipe_fields` takes.

    Returns:
        The path of the card.

    Raises:
        InputError: as `Sequences` and `train_part` do.
    """
    check_figure_path(str(folder / FIGURE))
    sequences = Sequences(
        symbols=symbols, longest=longest, longest_tested=longest_tested, pairs=pairs, tested=tested, seed=seed
    )
    splits = sequences.draw()
    if overwrite:
        forget_parts(folder, MODELS)
    data = write_texts(folder, _parallel_files(splits))
    rates = dict(zip(MODELS, (learning_rate, lstm_learning_rate), strict=True))
    runs = {
        name: train_part(
            folder,
            name,
            recipe_fields(data, seed=seed, longest_tested=longest_tested, learning_rate=rate, **model),
            is_lstm=name == "lstm",
        )
        for name, rate in rates.items()
    }
    references = [text[::-1] for text in splits["test"]]
    accuracies = {name: accuracy_by_length(references, _read_outputs(run)) for name, run in runs.items()}
    save_figure(_draw(accuracies, longest), folder / FIGURE)
    figures = {
        name: _figures(runs[name], accuracies[name], longest) | {"learning_rate": rates[name]} for name in MODELS
    }
    card = Card(
        title="Reversing a sequence: Transformer against LSTM",
        summary=f"A Transformer (Vaswani et al. 2017) of {model['layers']} + {model['layers']} layers, "
        f"{model['hidden_size']} wide and with {model['positions']} positions, and an LSTM of as many layers and "
        "parameters, with a bidirectional encoder (Bahdanau et al. 2015, section 3.2) and global attention (Luong et "
        f'al. 2015, section 3.1, score "general"), learn to write sequences of {symbols} letters backwards: from the '
        f"same {pairs:,} pairs of {SHORTEST} to {longest} letters, in the same batches, in {model['steps']:,} steps of "
        "AdamW on a cosine, each with a peak learning rate of its own. They are tested on "
        f"{tested} sequences of each length up to {longest_tested}, none of which is in the training or validation "
        "text, by greedy decoding.",
        sections=["## Results", _table(figures, longest), *_by_length(accuracies, longest)],
        figures=figures | {"by_length": accuracies},
        command=command,
        seed=seed,
        minutes=minutes_of(runs.values()),
        minutes_of="of training, both together",
        hardware=hardware_of(runs.values()),
    )
    return write_card(folder, card)


def recipe_fields(
    data: Path,
    *,
    seed: int,
    longest_tested: int,
    learning_rate: float,
    steps: int,
    layers: int,
    hidden_size: int,
    positions: str,
    tokens_per_batch: int,
) -> dict[str, Any]:
    """The recipe of a model: pre-norm, and no dropout, for there is a rule to learn and no noise to leave alone."""
    return {
        "objective": "seq2seq",
        "seed": seed,
        "data.dataset": data,
        "data.source_language": SOURCE,
        "data.target_language": TARGET,
        "data.max_length": longest_tested + 2,
        "cleaning.max_characters": 0,
        "cleaning.drop_copies": False,
        "tokenizer.algorithm": "characters",
        "tokenizer.vocab_size": 300,
        "model.encoder_layers": layers,
        "model.decoder_layers": layers,
        "model.hidden_size": hidden_size,
        "model.intermediate_size": 4 * hidden_size,
        "model.num_attention_heads": max(1, hidden_size // 32),
        "model.norm_position": "pre",
        "model.position_embedding_type": positions,
        "model.max_position_embeddings": 2 * longest_tested + 32,
        "model.dropout": 0.0,
        "model.label_smoothing": 0.0,
        "optimization.max_steps": steps,
        "optimization.tokens_per_batch": tokens_per_batch,
        "optimization.learning_rate": learning_rate,
        "optimization.schedule": "cosine",
        "optimization.warmup_steps": max(1, steps // 10),
        "evaluation.every_steps": max(10, steps // 5),
        "evaluation.num_beams": 1,
        "evaluation.validation_samples": 2,
    }


def _parallel_files(splits: Mapping[str, Iterable[str]]) -> dict[str, str]:
    return {
        f"{split}.{side}": "".join(f"{text[::step]}\n" for text in texts)
        for split, texts in splits.items()
        for side, step in ((SOURCE, 1), (TARGET, -1))
    }


def _read_outputs(run: RunRecord) -> list[str]:
    """What a finished model has made of the test's sequences, in their order."""
    lines = (run.path / "evaluation" / "test.outputs.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


Accuracies = dict[int, dict[str, float]]
"""Length -> `token` and `sequence` accuracy, from 0 to 1, and `count`, the sequences of that length."""


def accuracy_by_length(references: Sequence[str], outputs: Sequence[str]) -> Accuracies:
    """How much of the references is right, by their length.

    A token of a reference is right if the output has it in the same place; a sequence, if all of the output equals it.
    """
    accuracies: Accuracies = {}
    for length in sorted(set(map(len, references))):
        pairs = [pair for pair in zip(references, outputs, strict=True) if len(pair[0]) == length]
        right = sum(a == b for reference, output in pairs for a, b in zip(reference, output, strict=False))
        equal = sum(reference == output for reference, output in pairs)
        count = len(pairs)
        accuracies[length] = {"token": right / (count * length), "sequence": equal / count, "count": count}
    return accuracies


def _mean(accuracies: Accuracies, lengths: Iterable[int]) -> dict[str, float]:
    """Over all tokens, and over all sequences, of some lengths."""
    chosen = [(length, accuracies[length]) for length in lengths]
    tokens, sequences = sum(n * of["count"] for n, of in chosen), sum(of["count"] for _, of in chosen)
    return {
        "token": sum(n * of["count"] * of["token"] for n, of in chosen) / tokens if tokens else float("nan"),
        "sequence": sum(of["count"] * of["sequence"] for _, of in chosen) / sequences if sequences else float("nan"),
    }


def _figures(run: RunRecord, accuracies: Accuracies, longest: int) -> dict[str, Any]:
    trained = [length for length in accuracies if length <= longest]
    return {
        "parameters": run.parameters,
        "steps": run.step,
        "minutes": run.seconds / 60,
        "trained_lengths": _mean(accuracies, trained),
        "longer": _mean(accuracies, [length for length in accuracies if length > longest]),
    }


def _percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.1f}"


def _table(figures: Mapping[str, Mapping[str, Any]], longest: int) -> str:
    titles = ["Model", "Parameters", "Learning rate", "Steps", "Minutes", f"Tokens, up to {longest}, %",
              f"Sequences, up to {longest}, %", "Tokens, longer, %", "Sequences, longer, %"]  # fmt: skip
    rows = [
        [
            MODELS[name],
            f"{of['parameters']:,}",
            f"{of['learning_rate']:g}",
            f"{of['steps']:,}",
            f"{of['minutes']:.1f}",
            *(_percent(of[part][kind]) for part in ("trained_lengths", "longer") for kind in ("token", "sequence")),
        ]
        for name, of in figures.items()
    ]
    return markdown_table(titles, rows, right=range(1, len(titles)))


def _by_length(accuracies: Mapping[str, Accuracies], longest: int) -> list[str]:
    titles = ["Length", *(f"{title}, {kind}, %" for title in MODELS.values() for kind in ("tokens", "sequences"))]
    rows = [
        [
            f"{length}{' (not trained)' if length > longest else ''}",
            *(_percent(of[length][kind]) for of in accuracies.values() for kind in ("token", "sequence")),
        ]
        for length in accuracies["transformer"]
    ]
    return [
        "A token is right where the output has it in the same place; a sequence, where all of it is right.",
        f"![Sequence accuracy by length]({FIGURE})",
        "## By length",
        markdown_table(titles, rows, right=range(1, len(titles))),
    ]


def _draw(accuracies: Mapping[str, Accuracies], longest: int) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure((8.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for (name, of), colour in zip(accuracies.items(), ("tab:blue", "tab:orange"), strict=True):
        for kind, style in (("sequence", "-"), ("token", ":")):
            shares = [100 * of[length][kind] for length in of]
            axes.plot(list(of), shares, style, color=colour, label=f"{MODELS[name]}, {kind}s")
    axes.axvline(longest + 0.5, color="0.6", linewidth=0.8)
    axes.annotate("longer than trained", (longest + 0.6, 2), fontsize=7.5, color="0.4")
    axes.set_ylim(-2, 102)
    axes.locator_params(axis="x", integer=True)
    style_axes(axes, x="length of the sequence", y="accuracy, %")
    return figure
