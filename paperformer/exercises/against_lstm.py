"""A small Transformer language model beside an LSTM of the same size, on a sample of a text: by steps and by time."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedModel

from ..api.runs import Run
from ..api.texts import generate
from ..plots.figure_file import check_figure_path, save_figure
from ..plots.lines import style_axes
from ..training.console.input_error import InputError
from ..training.data.readers.sources import parse_sources, text_reader
from ..training.data.text.bad_lines import BadLines
from ..training.evaluation.metrics import BITS_PER_BYTE, LOSS, PERPLEXITY
from ..training.reporting.comparison import RunRecord
from ..training.reporting.markdown import fenced, markdown_table
from .card import Card, write_card
from .lstm import LSTMForCausalLM
from .parts import forget_parts, hardware_of, minutes_of, train_part, write_texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"transformer": "Transformer", "lstm-steps": "LSTM, same steps", "lstm-time": "LSTM, same time"}
HELD_OUT = 10
"""A part of that many is validated on, and as much tested on: as many words as a tenth of those that are trained on."""
WIKITEXT = {"hub": "Salesforce/wikitext", "config": "wikitext-2-v1", "split": "train"}
FIGURE = "loss.svg"


def compare_language_models(
    folder: Path,
    command: str,
    *,
    overwrite: bool,
    text: str | None,
    words: int,
    prompt: str,
    max_new_tokens: int,
    temperature: float,
    continuations: int,
    learning_rate: float,
    lstm_learning_rate: float,
    seed: int,
    **model: Any,
) -> Path:
    """Trains the models, as far as that is not done, lets them continue a text, and writes the card and its picture.

    Args:
        folder: of the exercise.
        command: for the card.
        overwrite: whether to train all anew.
        text: a file; None for WikiText-2 from the Hub.
        words: how many words to train on.
        prompt, max_new_tokens, temperature, continuations: what is continued, how far, how boldly, and how often.
        learning_rate, lstm_learning_rate: the peak of each.
        seed: of the first weights, the batches and the sampling.
        model: what else `recipe_fields` takes.

    Returns:
        The path of the card.

    Raises:
        InputError: if the text is too short or cannot be read, or a number is out of range; or as `train_part` does.
    """
    check_figure_path(str(folder / FIGURE))
    for name, value in (("words", words), ("max_new_tokens", max_new_tokens), ("continuations", continuations)):
        if value < 1:
            raise InputError(f"--{name} is {value}; it must be at least 1")
    splits = sample_text(text, words)
    if overwrite:
        forget_parts(folder, TITLES)
    data = write_texts(folder, splits)
    fields = recipe_fields(data, seed=seed, **model)
    runs = {"transformer": train_part(folder, "transformer", fields | {"optimization.learning_rate": learning_rate})}
    fields["optimization.learning_rate"] = lstm_learning_rate
    runs["lstm-steps"] = train_part(folder, "lstm-steps", fields, is_lstm=True)
    steps = steps_in_the_same_time(runs["transformer"], runs["lstm-steps"])
    runs["lstm-time"] = train_part(folder, "lstm-time", fields | schedule(steps), is_lstm=True)
    texts = {
        name: [
            generate(_load(run), prompt, max_new_tokens, temperature, 1.0, seed + number, tokenizer=_tokenizer(runs))
            for number in range(continuations)
        ]
        for name, run in runs.items()
    }
    save_figure(draw_losses({TITLES[name]: run for name, run in runs.items()}), folder / FIGURE)
    figures = {name: _figures(run) for name, run in runs.items()}
    card = Card(
        title="A language model of a small text: Transformer against LSTM",
        summary=_summary(text, words, model, learning_rate, lstm_learning_rate),
        sections=[
            "## Results",
            _table(figures),
            f"![Validation loss over the minutes of training]({FIGURE})",
            *continuation_sections({TITLES[name]: outputs for name, outputs in texts.items()}, temperature, seed),
        ],
        figures=figures | {"continuations": texts},
        command=command,
        seed=seed,
        minutes=minutes_of(runs.values()),
        minutes_of="of training, all together",
        hardware=hardware_of(runs.values()),
    )
    return write_card(folder, card)


def continuation_sections(texts: Mapping[str, Sequence[str]], temperature: float, seed: int) -> list[str]:
    """What a card shows of the continuations by each model: as many of each, sampled with seeds one after another."""
    last = seed + min(map(len, texts.values())) - 1
    shown = [f"{title}:\n\n{fenced(output)}" for title, outputs in texts.items() for output in outputs]
    how = f"Sampled at temperature {temperature:g} from the whole distribution, seeds {seed} to {last}."
    return ["## Continuations", how, *shown]


def steps_in_the_same_time(run: RunRecord, other: RunRecord) -> int:
    """How many steps the other takes in the time of the first run, at the speed that it had."""
    if other.seconds == 0:  # too short to be timed: it has a tenth of a second's resolution
        return other.step
    return max(2, round(other.step * run.seconds / other.seconds))


def sample_text(text: str | None, words: int) -> dict[str, str]:
    """The first words of a text, and for validation and test as many of those that follow as a tenth of them, each.

    Lines stay whole.

    Raises:
        InputError: if the text has not that many, or cannot be read.
    """
    (source,) = parse_sources(WIKITEXT if text is None else text, "--text", None)
    reader = text_reader(source, "text", None)
    reader.files()
    pieces = (piece for chunk in reader.chunks(BadLines()) for piece in chunk.column("text").to_pylist())
    lines = (line for piece in pieces for line in piece.splitlines(keepends=True))
    wanted = {"train": words, "validation": words // HELD_OUT, "test": words // HELD_OUT}
    splits, found = {}, 0
    for split, count in wanted.items():
        own = 0
        taken = []
        while own < max(1, count) and (line := next(lines, None)) is not None:
            taken.append(line)
            own += len(line.split())
        splits[f"{split}.txt"], found = "".join(taken), found + own
    if own < max(1, count):
        raise InputError(
            f"{text or WIKITEXT['hub']} has {found:,} words; --words {words} needs {sum(wanted.values()):,}, with "
            "those to validate and test on: give a longer text, or fewer --words"
        )
    return splits


def schedule(steps: int) -> dict[str, Any]:
    """The fields of a recipe that follow from its number of steps."""
    return {
        "optimization.max_steps": steps,
        "optimization.warmup_steps": max(1, steps // 10),
        "evaluation.every_steps": max(10, steps // 20),
    }


def recipe_fields(
    data: Path,
    *,
    seed: int,
    steps: int,
    layers: int,
    hidden_size: int,
    vocab_size: int,
    dropout: float,
    context_length: int,
    tokens_per_batch: int,
) -> dict[str, Any]:
    """The recipe of all models but for the learning rate; of an LSTM, the size of the Transformer that it matches."""
    return schedule(steps) | {
        "objective": "lm",
        "seed": seed,
        "data.dataset": data,
        "data.context_length": context_length,
        "tokenizer.vocab_size": vocab_size,
        "model.hidden_size": hidden_size,
        "model.intermediate_size": 8 * hidden_size // 3,
        "model.num_attention_heads": max(1, hidden_size // 32),
        "model.num_hidden_layers": layers,
        "model.max_position_embeddings": 2 * context_length,
        "model.dropout": dropout,
        "optimization.tokens_per_batch": tokens_per_batch,
        "optimization.schedule": "cosine",
        "optimization.adam_beta2": 0.95,
        "optimization.weight_decay": 0.1,
        "evaluation.validation_samples": 0,
        "evaluation.samples": 0,
    }


def _load(run: RunRecord) -> PreTrainedModel:
    if run.name == "transformer":
        return Run(run.path).model
    return LSTMForCausalLM.from_pretrained(run.path / "model")


def _tokenizer(runs: Mapping[str, RunRecord]) -> Any:
    return Run(runs["transformer"].path).tokenizer


def _summary(
    text: str | None, words: int, model: Mapping[str, Any], learning_rate: float, lstm_learning_rate: float
) -> str:
    name = Path(text).name if text else "WikiText-2 (Merity et al. 2016)"
    return (
        f"A Transformer of {model['layers']} blocks, {model['hidden_size']} wide, and an LSTM of as many layers and "
        "parameters, with tied weights and one dropout mask a sequence (Merity et al. 2018, without DropConnect and "
        f"averaged SGD), learn from the first {words:,} words of {name} in the same batches of "
        f"{model['tokens_per_batch']:,} tokens, with the same vocabulary of {model['vocab_size']:,}, dropout "
        f"{model['dropout']:g} and AdamW on a cosine; the peak learning rate is {learning_rate:g} for the Transformer "
        f"and {lstm_learning_rate:g} for the LSTM, whose own matrices have no weight decay. The LSTM is trained twice: "
        f"for as many steps, and for as long. It begins each context of {model['context_length']} tokens with an empty "
        "state. "
        f"Weights are chosen on the next {words // HELD_OUT:,} words and scored on the {words // HELD_OUT:,} after "
        "those, each token with at least half a context before it."
    )


def _figures(run: RunRecord) -> dict[str, Any]:
    test = {score.metric: score.value for score in run.test}
    return {
        "parameters": run.parameters,
        "steps": run.step,
        "minutes": run.seconds / 60,
        "tokens_per_second": run.tokens_per_second,
        "validation_loss": run.best,
        "best_step": run.best_step,
        "test_loss": test[LOSS],
        "test_perplexity_per_token": math.exp(test[LOSS]),
        "test_perplexity_per_word": test[PERPLEXITY],
        "test_bits_per_byte": test[BITS_PER_BYTE],
    }


def _table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    titles = ["Model", "Parameters", "Steps", "Minutes", "Tokens/s", "Validation loss", "at step",
              "Test perplexity a token", "Test perplexity a word", "Test bits a byte"]  # fmt: skip
    rows = [
        [
            TITLES[name],
            f"{of['parameters']:,}",
            f"{of['steps']:,}",
            f"{of['minutes']:.1f}",
            "–" if of["tokens_per_second"] is None else f"{of['tokens_per_second']:,.0f}",
            f"{of['validation_loss']:.4f}",
            f"{of['best_step']:,}",
            f"{of['test_perplexity_per_token']:.2f}",
            f"{of['test_perplexity_per_word']:.1f}",
            f"{of['test_bits_per_byte']:.4f}",
        ]
        for name, of in figures.items()
    ]
    return markdown_table(titles, rows, right=range(1, len(titles)))


def draw_losses(runs: Mapping[str, RunRecord]) -> "Figure":
    """Validation loss over minutes of training, which the records of validations hold, of each run by its title."""
    from matplotlib.figure import Figure

    figure = Figure((5.8, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, run in runs.items():
        records = [record for record in Run(run.path).metrics if "validation" in record]
        minutes = [record["seconds"] / 60 for record in records]
        axes.plot(minutes, [record["validation"][LOSS.name] for record in records], marker=".", label=name)
    style_axes(axes, x="minutes of training", y="validation loss, nats a token")
    return figure
