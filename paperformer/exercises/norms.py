"""Twins that differ in where their norms stand: post (Vaswani et al. 2017, arXiv 1706.03762), pre (Xiong et al. 2020,
arXiv 2002.04745) and peri (Kim et al. 2025, arXiv 2502.02732), with the gradient norm of each layer while they learn.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..plots.figure_file import check_figure_path, save_figure
from ..plots.gradient_norms import GradientHistory, read_gradient_history, sort_by_stack
from ..plots.lines import draw_indexed_lines, style_axes
from ..training.console.input_error import InputError
from ..training.evaluation.metrics import BITS_PER_BYTE, LOSS
from ..training.reporting.comparison import RunRecord
from ..training.reporting.markdown import markdown_table
from ..training.reporting.recorder import LOG_EVERY
from .card import Card, write_card
from .parts import forget_parts, hardware_of, minutes_of, train_part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACES = ("post", "pre", "peri")
SHAKESPEARE = "built-in:shakespeare"
GRADIENTS, LOSSES = "gradients.svg", "losses.svg"


def twin(
    place: str,
    *,
    dataset: str,
    vocab_size: int,
    steps: int,
    layers: int,
    hidden_size: int,
    learning_rate: float,
    warmup_steps: int,
    tokens_per_batch: int,
    seed: int,
) -> dict[str, Any]:
    """The fields of `shakespeare-lm` that a twin changes; only the first differs from twin to twin."""
    return {
        "model.norm_position": place,
        "data.dataset": dataset,
        "tokenizer.vocab_size": vocab_size,
        "model.num_hidden_layers": layers,
        "model.hidden_size": hidden_size,
        "model.intermediate_size": 8 * hidden_size // 3,
        "model.num_attention_heads": max(1, hidden_size // 32),
        "model.num_key_value_heads": max(1, hidden_size // 32),
        "optimization.max_steps": steps,
        "optimization.warmup_steps": warmup_steps,
        "optimization.learning_rate": learning_rate,
        "optimization.tokens_per_batch": tokens_per_batch,
        "evaluation.every_steps": max(20, steps // 8),
        "evaluation.validation_samples": 0,
        "evaluation.samples": 0,
        "seed": seed,
    }


def compare_norms(folder: Path, command: str, *, overwrite: bool, **size: Any) -> Path:
    """Trains the twins, as far as that is not done, and writes the card and its pictures.

    Args:
        folder: of the exercise.
        command: for the card.
        overwrite: whether to train all of them anew.
        size: what `twin` takes but for the place.

    Returns:
        The path of the card.

    Raises:
        InputError: if there are too few steps to draw; or as `train_part` does.
    """
    check_figure_path(str(folder / GRADIENTS))
    if size["steps"] < 2 * LOG_EVERY:
        raise InputError(f"--steps is {size['steps']}; curves need at least {2 * LOG_EVERY}")
    if overwrite:
        forget_parts(folder, PLACES)
    runs = {place: train_part(folder, place, twin(place, **size), config="shakespeare-lm") for place in PLACES}
    histories = {place: read_gradient_history(run.path) for place, run in runs.items()}
    save_figure(draw_twins(histories), folder / GRADIENTS)
    save_figure(_draw_losses(runs), folder / LOSSES)
    figures = {place: _figures(runs[place], histories[place]) for place in PLACES}
    card = Card(
        title="Where the norms stand: post, pre, peri",
        summary=f"Three language models of {_title(size['dataset'])}, {size['layers']} layers of "
        f"{size['hidden_size']}, {size['steps']:,} steps of {size['tokens_per_batch']:,} tokens, a peak learning rate "
        f"of {size['learning_rate']:g} after {size['warmup_steps']} steps of warm-up. Seed, batches, optimizer and "
        "first weights are the same; norms stand after each sub-layer (post; Vaswani et al. 2017), before it (pre; "
        "Xiong et al. 2020) or on both sides of it (peri; Kim et al. 2025).",
        sections=[
            "## Results",
            _table(figures),
            "The loss is that of the weights that score best on the validation split, in nats a token, and bits a byte "
            "of the test split. The ratio is the gradient norm of the last layer over that of the first, before "
            "clipping: 1 is a gradient that reaches all layers alike.",
            f"![Gradient norm of each layer over the steps]({GRADIENTS})",
            f"![Loss on the validation split over the steps]({LOSSES})",
        ],
        figures=figures,
        command=command,
        seed=size["seed"],
        minutes=minutes_of(runs.values()),
        minutes_of="of training, all three together",
        hardware=hardware_of(runs.values()),
    )
    return write_card(folder, card)


def _title(dataset: str) -> str:
    return "Shakespeare's plays" if dataset == SHAKESPEARE else Path(dataset).name


def _figures(run: RunRecord, history: GradientHistory) -> dict[str, Any]:
    layers = sort_by_stack(history)[0].layers
    # Under post-norm the gradient of the first layer may vanish altogether.
    ratios = [last / first if first else None for first, last in zip(layers[0], layers[-1], strict=True)]
    test = {score.metric: score.value for score in run.test}
    return {
        "parameters": run.parameters,
        "validation_loss": run.best,
        "test_loss": test[LOSS],
        "test_bits_per_byte": test[BITS_PER_BYTE],
        "largest_gradient_norm": max(history.total),
        "first_step_drawn": history.steps[0],
        "ratio_at_first": ratios[0],
        "ratio_at_last": ratios[-1],
        "minutes": run.seconds / 60,
        "events": len(run.events),
    }


def _table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    first = next(iter(figures.values()))["first_step_drawn"]
    titles = ["Norms", "Parameters", "Validation loss", "Test loss", "Test bits a byte", "Largest gradient norm",
              f"Last / first layer, step {first}", "Last / first layer, end", "Loss spikes", "Minutes"]  # fmt: skip
    rows = [
        [
            place,
            f"{of['parameters']:,}",
            f"{of['validation_loss']:.4f}",
            f"{of['test_loss']:.4f}",
            f"{of['test_bits_per_byte']:.4f}",
            f"{of['largest_gradient_norm']:.2f}",
            _ratio(of["ratio_at_first"]),
            _ratio(of["ratio_at_last"]),
            f"{of['events']}",
            f"{of['minutes']:.1f}",
        ]
        for place, of in figures.items()
    ]
    return markdown_table(titles, rows, right=range(1, len(titles)))


def _ratio(value: float | None) -> str:
    if value is None:
        return "∞"
    return f"{value:.2f}" if value < 1000 else f"{value:.1e}"


def draw_twins(histories: Mapping[str, GradientHistory]) -> "Figure":
    """A panel for each twin, a line for each layer, on one logarithmic scale."""
    from matplotlib.figure import Figure

    figure = Figure((4.2 * len(histories), 3.6), layout="constrained")
    panels: Sequence[Any] = figure.subplots(1, len(histories), sharex=True, sharey=True)
    for index, ((place, history), axes) in enumerate(zip(histories.items(), panels, strict=True)):
        (stack,) = sort_by_stack(history)
        axes.set_yscale("log")
        axes.plot(history.steps, history.total, color="black", linewidth=0.9, linestyle=":", label="all parameters")
        y = "" if index else "gradient norm before clipping"
        style_axes(axes, title=f"{place}-norm", x="step (optimizer updates)", y=y)
        draw_indexed_lines(figure, axes, history.steps, stack.layers, "layer")
    return figure


def _draw_losses(runs: Mapping[str, RunRecord]) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure((5.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for place, run in runs.items():
        steps = sorted(run.validation)
        axes.plot(steps, [run.validation[step][LOSS.name] for step in steps], marker=".", label=f"{place}-norm")
    style_axes(axes, x="step (optimizer updates)", y="validation loss, nats a token")
    return figure
