"""What the tabs have in common of Gradio."""

from typing import Any

import gradio as gr

QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
"""Of an event: it says itself what it does, and is for the page only."""


def own_html(value: str, elem_id: str | None = None) -> gr.HTML:
    """A place for HTML of `markup`, which has looks of its own and no scripts."""
    return gr.HTML(value, elem_id=elem_id, apply_default_css=False, js_on_load=None)
