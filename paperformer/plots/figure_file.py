"""Figures as files, PNG or SVG, without a display and without pyplot's global state."""

import importlib.util
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..training.atomic_files import replace_file, writing
from ..training.console.input_error import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200  # pixels an inch of a PNG


def check_figure_path(output: str) -> Path:
    """The path of a figure, checked before anything is computed.

    Raises:
        InputError: if it ends in neither .png nor .svg, if it is a folder, or if matplotlib is not installed.
    """
    path = Path(output)
    if path.suffix.lower() not in (".png", ".svg"):
        raise InputError(f"--output is {output}; it must end in .png or .svg")
    if path.is_dir():
        raise InputError(f"--output is {output}, which is a folder; it must be a file")
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("plots need matplotlib, paperformer's extra plots; install it with: pip install matplotlib")
    return path


def save_figure(figure: "Figure", path: Path) -> None:
    """Writes a figure whole or not at all, as the ending of its path says; the same figure gives the same bytes.

    The page is as large as what is drawn, be it beyond the figure's own size.

    Raises:
        InputError: if it cannot be written.
    """
    from matplotlib import rc_context

    content, is_svg = io.BytesIO(), path.suffix.lower() == ".svg"
    metadata: dict[str, Any] = {"Date": None} if is_svg else {}
    with rc_context({"svg.hashsalt": "paperformer"}):  # the names of an SVG's elements are random otherwise
        figure.savefig(content, format="svg" if is_svg else "png", dpi=DPI, metadata=metadata, bbox_inches="tight")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content.getvalue())
