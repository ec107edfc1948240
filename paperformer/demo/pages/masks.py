"""The tab of masked models: words filled in."""

from collections.abc import Iterator, Sequence

import gradio as gr

from ...training.console.input_error import InputError
from ..markup import show_fillings, show_state
from ..models import ShownModel, fill_masks
from .widgets import QUIET, own_html


def fill(model: ShownModel, text: str) -> Iterator[str]:
    """The page's answer to a text with masks."""
    yield show_state("busy", f"{model.name} fills it in")
    try:
        with model.lock:
            yield show_fillings(fill_masks(model.filler, text))
    except InputError as error:
        yield show_state("failed", str(error))


def add_mask_tab(models: Sequence[ShownModel]) -> None:
    """Adds the widgets to the tab that is open."""
    by_name = {model.name: model for model in models}
    chosen = gr.Dropdown(list(by_name), value=models[0].name, label="Model", visible=len(models) > 1)
    mask = models[0].filler.mask
    text = gr.Textbox(
        models[0].example, lines=1, max_lines=12, label="Text", info=f"{mask} stands for a word.", elem_id="pf-masked"
    )
    button = gr.Button("Fill in", variant="primary", elem_id="pf-fill")
    shown = own_html(show_state("empty", "What may stand there comes here."), elem_id="pf-fillings")

    def answer(name: str, text: str) -> Iterator[str]:
        yield from fill(by_name[name], text)

    gr.on([button.click, text.submit], answer, [chosen, text], shown, **QUIET)
