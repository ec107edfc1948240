"""Gradient norms by layer over a training run, from its metrics.jsonl."""

import re
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..training.console.input_error import InputError
from ..training.recipe.run import RunOptions
from ..training.run_folder import RunFolder
from .lines import add_scale, draw_indexed_lines, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIELD = "gradient_norm_by_layer"
LINE_STYLES = ("--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))  # of what is no layer


@dataclass(frozen=True)
class GradientHistory:
    """What a run has recorded, step by step."""

    steps: list[int]
    total: list[float]
    """The norm of the whole gradient."""

    modules: dict[str, list[float]]
    """The norm of the gradient of each layer and of each module outside of them; NaN where it had none."""


@dataclass(frozen=True)
class StackHistory:
    """The part of it that belongs to one stack of layers."""

    name: str
    """`encoder`, `decoder`, or empty for the only one."""

    layers: list[list[float]] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=dict)
    """Embeddings, norms, heads."""


def read_gradient_history(run_folder: Path) -> GradientHistory:
    """Reads the gradient norms of a run.

    Raises:
        InputError: if the folder is no run's, or its metrics.jsonl is damaged or has too few gradient norms by layer.
    """
    if not run_folder.is_dir():
        raise InputError(f"there is no folder {run_folder}; give a run's folder, such as runs/NAME")
    folder = RunFolder(RunOptions(name=run_folder.resolve().name, output_dir=str(run_folder.resolve().parent)))
    if not folder.metrics_path.is_file():
        raise InputError(f"{run_folder} is no run's folder: no metrics.jsonl")
    try:
        by_step = {
            record["step"]: record for record in folder.metrics() if FIELD in record
        }  # after a roll-back the last
    except ValueError as error:  # not JSON, or not UTF-8
        raise InputError(f"{folder.metrics_path} is damaged: {error}") from error
    if len(by_step) < 2:
        raise InputError(
            f"{folder.metrics_path} has gradient norms by layer of {len(by_step)} steps; a plot needs at least 2 "
            "(runs of an older version have none)"
        )
    records = by_step.values()
    names = dict.fromkeys(name for record in records for name in record[FIELD])
    return GradientHistory(
        list(by_step),
        [_norm(record["gradient_norm"]) for record in records],
        {name: [_norm(record[FIELD].get(name)) for record in records] for name in names},
    )


def _norm(value: float | None) -> float:
    """A norm of metrics.jsonl, where null is one that is not finite."""
    return np.nan if value is None else value


def sort_by_stack(history: GradientHistory) -> list[StackHistory]:
    """Sorts modules by the stack that they belong to; what belongs to none, such as a head, goes with the last."""
    numbers = {name: re.fullmatch(r"(.*?)\.?layers\.(\d+)", name) for name in history.modules}
    stacks = {match[1]: StackHistory(match[1]) for match in numbers.values() if match}
    for name, norms in history.modules.items():
        prefix, _, rest = name.partition(".")
        if match := numbers[name]:
            stacks[match[1]].layers.append(norms)  # recorded in the order of the layers
        elif prefix in stacks:
            stacks[prefix].others[rest] = norms
        else:
            list(stacks.values())[-1].others[name] = norms
    return list(stacks.values())


def draw_gradients(history: GradientHistory, run_name: str, *, heatmap: bool = False) -> "Figure":
    """Gradient norm over steps: a panel for each stack, a line for each layer, one logarithmic scale for all.

    Args:
        history: what the run has recorded.
        run_name: for the title.
        heatmap: add a map of layer by step below the lines.
    """
    from matplotlib.figure import Figure

    stacks = sort_by_stack(history)
    figure = Figure((max(7.0, 5.0 * len(stacks)), 3.8 + 2.4 * heatmap), layout="constrained")
    figure.suptitle(f"Gradient norm by layer of {run_name}", fontsize=11, parse_math=False)
    grid = figure.subplots(1 + heatmap, len(stacks), squeeze=False, sharex=True, sharey="row")
    for index, (stack, column) in enumerate(zip(stacks, grid.T, strict=True)):
        step = "step (optimizer updates)"
        axes = column[0]
        axes.set_yscale("log")
        axes.plot(history.steps, history.total, color="black", linewidth=0.9, linestyle=":", label="all parameters")
        for (name, norms), style in zip(stack.others.items(), cycle(LINE_STYLES)):
            axes.plot(history.steps, norms, color="0.5", linewidth=0.9, linestyle=style, label=name)
        style_axes(
            axes, title=stack.name, x="" if heatmap else step, y="" if index else "gradient norm before clipping"
        )
        draw_indexed_lines(figure, axes, history.steps, stack.layers, "layer")
        if heatmap:
            _draw_heatmap(figure, column[1], history.steps, stack.layers, _find_extremes(stacks))
            style_axes(column[1], x=step, y="" if index else "layer", is_open=False)
    return figure


def _draw_heatmap(
    figure: "Figure", axes: "Axes", steps: list[int], layers: list[list[float]], extremes: tuple[float, float]
) -> None:
    from matplotlib.colors import LogNorm

    image = axes.pcolormesh(
        steps, range(len(layers)), layers, norm=LogNorm(*extremes), cmap="magma", shading="nearest", rasterized=True
    )
    axes.locator_params(axis="y", integer=True, min_n_ticks=1)  # its rows are layers
    add_scale(figure, axes, image, "gradient norm")


def _find_extremes(stacks: list[StackHistory]) -> tuple[float, float]:
    norms = np.array([norm for stack in stacks for layer in stack.layers for norm in layer])
    return float(np.nanmin(norms[norms > 0])), float(np.nanmax(norms))
