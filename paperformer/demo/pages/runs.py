"""The tab of training runs, which follows them as they go on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from ..markup import show_state
from ..runs import list_names, show_runs, stamp
from .widgets import QUIET, own_html

SECONDS = 2.0
"""Between two looks at the files of the runs that are shown."""


def follow(output_dir: Path, names: Sequence[str], seen: Any) -> tuple[Any, Any]:
    """The runs as HTML where their files have changed, else nothing new; and what their files are like now."""
    now = stamp(output_dir, names)
    return (gr.skip(), seen) if now == seen else (show_runs(output_dir, names), now)


def add_runs_tab(output_dir: Path) -> None:
    """Adds the widgets to the tab that is open."""
    names = list_names(output_dir) if output_dir.is_dir() else []
    seen = gr.State(stamp(output_dir, names[:1]))
    with gr.Row():
        chosen = gr.Dropdown(names, value=names[:1], multiselect=True, label=f"Runs in {output_dir}", elem_id="pf-runs")
        again = gr.Button("Look for new runs", scale=0, min_width=200, elem_id="pf-look")
    nothing = f"There are no runs in {output_dir}; paperformer train makes some, and --output_dir names another folder."
    first = show_runs(output_dir, names[:1]) if names else show_state("empty", nothing)
    shown = own_html(first, elem_id="pf-run")
    timer = gr.Timer(SECONDS)

    def look() -> Any:
        return gr.update(choices=list_names(output_dir) if output_dir.is_dir() else [])

    def tick(names: Sequence[str], seen: Any) -> tuple[Any, Any]:
        return follow(output_dir, names, seen) if names else (gr.skip(), seen)

    def choose(names: Sequence[str]) -> tuple[str, Any]:
        return show_runs(output_dir, names), stamp(output_dir, names)

    again.click(look, None, chosen, **QUIET)
    timer.tick(tick, [chosen, seen], [shown, seen], **QUIET)
    chosen.change(choose, [chosen], [shown, seen], **QUIET)
