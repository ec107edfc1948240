"""Line plots: what their axes have in common, and lines that are told apart by a number such as a layer or a head."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure, SubFigure


def draw_indexed_lines(
    figure: "Figure | SubFigure", axes: "Axes", x: Sequence[float], lines: Sequence[Sequence[float]], name: str
) -> None:
    """Draws line i in the i-th colour from dark to light, labelled `NAME i`, and adds the scale of colours.

    Args:
        figure: what holds the axes.
        x: shared by all lines.
        lines: the heights of each line, one for each x.
        name: what the lines are numbers of.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.ticker import MaxNLocator

    count = len(lines)
    colours = colormaps["viridis"](np.linspace(0, 0.92, count))  # its last yellow is too light for a line
    for index, (line, colour) in enumerate(zip(lines, colours, strict=True)):
        axes.plot(x, line, color=colour, linewidth=1.1, label=f"{name} {index}")
    of_number = ScalarMappable(BoundaryNorm(np.arange(count + 1) - 0.5, count), ListedColormap(colours))
    add_scale(figure, axes, of_number, name, ticks=MaxNLocator(nbins=12, integer=True, min_n_ticks=1))


def add_scale(figure: "Figure | SubFigure", axes: "Axes", of: "ScalarMappable", label: str, **options: Any) -> None:
    """Draws a scale of colours beside the axes; options are those of `colorbar`."""
    style_scale(figure.colorbar(of, ax=axes, aspect=30, pad=0.02, label=label, **options).ax)


def style_scale(axes: "Axes") -> None:
    """Brings the axes of a colour scale, or a second scale, to the size of print of all others."""
    axes.tick_params(which="both", labelsize=8, length=2)
    axes.yaxis.label.set_fontsize(9)


def style_axes(axes: "Axes", *, title: str = "", x: str = "", y: str = "", is_open: bool = True) -> None:
    """Title, axis labels and size of print; without the frame's upper and right side, if `is_open`.

    Lines that have a label by now are explained in a row above the axes, where it hides none of them.
    """
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(handles), fontsize=7.5, frameon=False,
            columnspacing=1.2, handlelength=1.8, borderaxespad=0.1,
        )  # fmt: skip
    axes.set_title(title, fontsize=10, pad=20 if handles else 6)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    if is_open:
        axes.spines[["top", "right"]].set_visible(False)
