"""A finished language model beside an LSTM of its size that is trained for as long, on the same batches."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..api.runs import Run
from ..api.texts import generate
from ..plots.figure_file import check_figure_path, save_figure
from ..training.console.input_error import InputError
from ..training.evaluation.metrics import BITS_PER_BYTE, LOSS, PERPLEXITY
from ..training.evaluation.scored_split import compare_splits, read_scored_split
from ..training.reporting.comparison import RunRecord, read_run
from ..training.reporting.markdown import markdown_table
from .against_lstm import FIGURE, continuation_sections, draw_losses, steps_in_the_same_time
from .card import Card, write_card
from .lstm import LSTMForCausalLM
from .parts import forget_parts, hardware_of, minutes_of, train_part

TRIAL, TWIN = "trial", "lstm"
TRIAL_STEPS = 30
"""From how many steps the LSTM's speed is known; the first ones, which are slower, do not count."""


def train_lstm_twin(
    folder: Path,
    command: str,
    *,
    overwrite: bool,
    run: str,
    layers: int,
    optimizer: str,
    learning_rate: float,
    steps: int | None,
    prompt: str,
    max_new_tokens: int,
    temperature: float,
    continuations: int,
    seed: int,
) -> Path:
    """Trains the LSTM as far as that is not done, lets both continue a text, and writes the card and its picture.

    Args:
        folder: of the exercise.
        command: for the card.
        overwrite: whether to train anew.
        run: folder of the finished run of a language model, whose recipe the LSTM shares.
        layers: of the LSTM; its width follows from the number of parameters.
        optimizer, learning_rate: what the LSTM has of its own; the schedule keeps its form.
        steps: of the LSTM; None: as many as it makes in the time of the run.
        prompt, max_new_tokens, temperature, continuations, seed: what is continued, how far, how boldly, how often.

    Returns:
        The path of the card.

    Raises:
        InputError: if the run is none of a finished language model, or a number is out of range; or as `train_part`.
    """
    check_figure_path(str(folder / FIGURE))
    for name, value in (("layers", layers), ("max_new_tokens", max_new_tokens), ("continuations", continuations)):
        if value < 1:
            raise InputError(f"--{name} is {value}; it must be at least 1")
    transformer = _finished_language_model(run)
    if overwrite:
        forget_parts(folder, [TRIAL, TWIN])
    _check_layers(folder, layers)
    own = {"optimization.optimizer": optimizer, "optimization.learning_rate": learning_rate}
    lstm = _train(folder, transformer, own, layers, steps)
    runs = {"Transformer": transformer, "LSTM": lstm}
    tokenizer = Run(transformer.path).tokenizer
    models = {"Transformer": Run(transformer.path).model, "LSTM": LSTMForCausalLM.from_pretrained(lstm.path / "model")}
    texts = {
        name: [
            generate(model, prompt, max_new_tokens, temperature, 1.0, seed + number, tokenizer=tokenizer)
            for number in range(continuations)
        ]
        for name, model in models.items()
    }
    save_figure(draw_losses(runs), folder / FIGURE)
    figures = {name: _figures(of) for name, of in runs.items()}
    card = Card(
        title=f"{transformer.name}: Transformer against LSTM",
        summary=_summary(transformer, layers, optimizer, learning_rate),
        sections=[
            "## Results",
            _table(figures),
            _compare(transformer, lstm),
            f"![Validation loss over the minutes of training]({FIGURE})",
            *continuation_sections(texts, temperature, seed),
        ],
        figures=figures | {"continuations": texts},
        command=command,
        seed=transformer.recipe["seed"],
        minutes=minutes_of(runs.values()),
        minutes_of="of training, both together",
        hardware=hardware_of(runs.values()),
    )
    return write_card(folder, card)


def _finished_language_model(run: str) -> RunRecord:
    record = read_run(Path(run))
    if record.problem or not record.is_finished:
        raise InputError(f"{run} is no finished run ({record.problem or record.state}); train it first")
    if record.recipe["objective"] != "lm":
        raise InputError(f"{run} is a run of {record.recipe['objective']}; this exercise takes a language model (lm)")
    return record


def _check_layers(folder: Path, layers: int) -> None:
    """Raises InputError if an LSTM of other layers is there: how many it has is not in its recipe."""
    for path in (folder / name / "config.json" for name in (TRIAL, TWIN)):
        before = json.loads(path.read_text("utf-8"))["num_hidden_layers"] if path.is_file() else layers
        if before != layers:
            raise InputError(
                f"{path.parent} was trained with {before} layers, and this asks for {layers}; give --overwrite to "
                "train it anew, or another --output_dir"
            )


def _train(folder: Path, transformer: RunRecord, own: Mapping[str, Any], layers: int, steps: int | None) -> RunRecord:
    """Trains the LSTM for a number of steps, or for as many as it makes in the time of the Transformer."""
    parts: dict[str, Any] = {"config": str(transformer.path / "recipe.yaml"), "is_lstm": True, "lstm_layers": layers}
    if steps is None:
        trial = train_part(folder, TRIAL, {**own, **_schedule(transformer, TRIAL_STEPS)}, **parts)
        steps = steps_in_the_same_time(transformer, trial)
    return train_part(folder, TWIN, {**own, **_schedule(transformer, steps)}, **parts)


def _schedule(run: RunRecord, steps: int) -> dict[str, Any]:
    """The fields of a recipe that follow from its number of steps, in the proportions of a run."""
    share = steps / run.recipe["optimization.max_steps"]
    return {
        "optimization.max_steps": steps,
        "optimization.warmup_steps": max(1, round(share * run.recipe["optimization.warmup_steps"])),
        "evaluation.every_steps": max(1, min(steps, round(share * run.recipe["evaluation.every_steps"]))),
    }


def _summary(transformer: RunRecord, layers: int, optimizer: str, learning_rate: float) -> str:
    recipe = transformer.recipe
    return (
        f"The Transformer of the run {transformer.name} ({recipe['model.num_hidden_layers']} blocks, "
        f"{recipe['model.hidden_size']} wide, {recipe['optimization.optimizer']} with a peak of "
        f"{recipe['optimization.learning_rate']:g}) and an LSTM of {layers} layers and as many parameters, with tied "
        "weights, an output bias and one dropout mask a sequence (Merity et al. 2018, without DropConnect and averaged "
        f"SGD), trained with {optimizer} and a peak of {learning_rate:g} for as long, on the same batches of "
        f"{recipe['optimization.tokens_per_batch']:,} tokens, by the same schedule. The LSTM begins each context of "
        f"{recipe['data.context_length']} tokens with an empty state. Weights are chosen on the validation split and "
        "scored on the test split once, each token with at least half a context before it. Published perplexities of "
        "word-level models count the end of each line as a word: the column beside the perplexity a word does so too."
    )


def _figures(run: RunRecord) -> dict[str, Any]:
    test = {score.metric: score for score in run.test}
    loss, words = test[LOSS], test[PERPLEXITY].count
    lines = sum(text.count("\n") for text in read_scored_split(run.path / "evaluation").texts)
    return {
        "parameters": run.parameters,
        "steps": run.step,
        "minutes": run.seconds / 60,
        "tokens_per_second": run.tokens_per_second,
        "validation_loss": run.best,
        "test_loss": loss.value,
        "test_perplexity_per_word": test[PERPLEXITY].value,
        "test_words": words,
        "test_lines": lines,
        "test_perplexity_per_word_or_line_end": math.exp(loss.value * loss.count / (words + lines)),
        "test_bits_per_byte": test[BITS_PER_BYTE].value,
    }


def _table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    titles = ["Model", "Parameters", "Steps", "Minutes", "Tokens/s", "Validation loss", "Test loss",
              "Test perplexity a word", "with line ends", "Test bits a byte"]  # fmt: skip
    rows = [
        [
            name,
            f"{of['parameters']:,}",
            f"{of['steps']:,}",
            f"{of['minutes']:.1f}",
            "–" if of["tokens_per_second"] is None else f"{of['tokens_per_second']:,.0f}",
            f"{of['validation_loss']:.4f}",
            f"{of['test_loss']:.4f}",
            f"{of['test_perplexity_per_word']:.2f}",
            f"{of['test_perplexity_per_word_or_line_end']:.2f}",
            f"{of['test_bits_per_byte']:.4f}",
        ]
        for name, of in figures.items()
    ]
    return markdown_table(titles, rows, right=range(1, len(titles)))


def _compare(transformer: RunRecord, lstm: RunRecord) -> str:
    """A sentence: whether the difference between the two is more than chance."""
    splits = (read_scored_split(run.path / "evaluation") for run in (lstm, transformer))
    comparisons, reason = compare_splits(*splits)
    return (
        " ".join(
            f"The Transformer's {comparison.metric.label} is {abs(comparison.difference):.4f} "
            f"{'less' if comparison.difference < 0 else 'more'} than the LSTM's "
            f"(p = {comparison.p_value:.4f}; {comparison.signature}): {comparison.verdict}."
            for comparison in comparisons
        )
        or f"Not tested for significance: {reason}."
    )
