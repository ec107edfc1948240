"""The tab of translation models: a text, or a file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import gradio as gr

from ...training.console.input_error import InputError
from ...translation.formats.names import FormatOptions
from ..attention import attend_words
from ..beams import SearchedText, cut_source, find_language_tags, search_text
from ..files import output_name, translate_file
from ..markup import show_attention, show_file, show_model, show_state
from ..models import ShownModel
from .widgets import QUIET, own_html

NONE = "none"
MOST_TAGS = 12
PREFIX = "A language tag such as <2de>, or what T5 is told to do; before every line of a file as well."
FILE_TYPES = [".txt", ".po", ".pot", ".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".mxliff", ".tmx", ".tsv", ".csv",
              ".jsonl", ".ndjson", ".gz", ".bz2", ".xz", ".zst"]  # fmt: skip


def translate(
    models: Sequence[ShownModel], text: str, num_beams: int, n_best: int, length_penalty: float, prefix: str = ""
) -> Iterator[str]:
    """The page's answer to a text: first that it is busy, then what one model makes of it, or two.

    Args:
        models: those models.
        text: to be translated.
        num_beams, n_best, length_penalty, prefix: as `search_text` takes them.
    """
    if not text.strip():
        yield show_state("failed", "there is no text to translate; type some")
        return
    yield show_state("busy", f"{' and '.join(model.name for model in models)} at work on it")
    try:
        found = [_search(model, text, num_beams, n_best, length_penalty, prefix) for model in models]
    except InputError as error:
        yield show_state("failed", str(error))
        return
    others = [searched.translations[0].text for searched, *_ in found][::-1] if len(found) > 1 else [""]
    shown = [
        show_model(model.name, searched, attention, other=other, notes=notes)
        for model, (searched, attention, notes), other in zip(models, found, others, strict=True)
    ]
    yield f'<div class="pf-beside">{"".join(shown)}</div>'


def _search(
    model: ShownModel, text: str, num_beams: int, n_best: int, length_penalty: float, prefix: str
) -> tuple[SearchedText, str, list[str]]:
    """What a model finds, its attention as HTML, and what has to be said of it."""
    with model.lock:
        translator, notes = model.translator, []
        pieces = cut_source(translator, text, prefix)
        tags = find_language_tags(translator.tokenizer)
        if tags and not (prefix + text).lstrip().startswith(tags):
            shown = ", ".join(tags[:MOST_TAGS]) + (" ..." if len(tags) > MOST_TAGS else "")
            notes.append(f"The model has tags, one for each language; put one before the text: {shown}")
        if len(pieces) > 1:
            notes.append(
                f"The text is longer than the {translator.longest:,} tokens that the model takes. This is the first of "
                f"{len(pieces):,} pieces; a file is translated as a whole."
            )
        options: dict[str, Any] = {"num_beams": num_beams, "n_best": n_best, "length_penalty": length_penalty}
        searched = search_text(translator, pieces[0], prefix=prefix, **options)
        try:
            attention = show_attention(attend_words(translator, searched))
        except InputError as error:
            attention = show_state("note", str(error))
    return searched, attention, notes


def translate_upload(
    model: ShownModel, upload: str | None, options: FormatOptions, progress: Any, prefix: str = ""
) -> tuple[str, str | None]:
    """The page's answer to a file: what came of it, and the translated file."""
    if upload is None:
        return show_state("failed", "there is no file; drop one"), None
    path = Path(upload)
    output = Path(mkdtemp(dir=path.parent)) / output_name(path.name)

    def tell(done: int, total: int | None) -> None:
        progress((done, total) if total else None, desc=f"translate {path.name}")

    try:
        with model.lock:
            summary, notes = translate_file(model.translator, path, output, options, tell, prefix=prefix)
    except InputError as error:
        message = str(error).replace(str(path), path.name).replace("--", "")
        return show_state("failed", message), None
    return show_file(summary, notes), str(output)


def add_translation_tab(models: Sequence[ShownModel]) -> None:
    """Adds the widgets to the tab that is open."""
    by_name = {model.name: model for model in models}
    with gr.Row():
        first = gr.Dropdown(list(by_name), value=models[0].name, label="Model", visible=len(models) > 1)
        second = gr.Dropdown([NONE, *by_name], value=NONE, label="Beside it", visible=len(models) > 1)
    text = gr.Textbox(
        models[0].example, label="Text", lines=1, max_lines=12, elem_id="pf-source", info="Enter translates."
    )
    prefix = gr.Textbox(label="Put before the text", info=PREFIX, elem_id="pf-prefix")
    with gr.Row():
        beams = gr.Slider(1, 12, 5, step=1, label="Beams")
        n_best = gr.Slider(1, 12, 5, step=1, label="Translations shown")
        penalty = gr.Slider(0, 2, 1, step=0.1, label="Length penalty")
    button = gr.Button("Translate", variant="primary", elem_id="pf-translate")
    shown = own_html(show_state("empty", "The translation comes here."), elem_id="pf-translations")

    def answer(
        text: str, name: str, other: str, num_beams: int, n_best: int, length_penalty: float, prefix: str
    ) -> Iterator[str]:
        chosen = [by_name[name], *([by_name[other]] if other != NONE else [])]
        yield from translate(chosen, text, int(num_beams), int(n_best), length_penalty, prefix)

    asked = [text, first, second, beams, n_best, penalty, prefix]
    gr.on([button.click, text.submit, prefix.submit], answer, asked, shown, **QUIET)
    _add_file_part(by_name, first, prefix)


def _add_file_part(by_name: dict[str, ShownModel], first: gr.Dropdown, prefix: gr.Textbox) -> None:
    with gr.Accordion("Translate a file", open=False, elem_id="pf-file-part"):
        upload = gr.File(label="Text, catalogue, XLIFF, TMX, table or JSON Lines", file_types=FILE_TYPES)
        with gr.Accordion("What the file does not say itself", open=False):
            with gr.Row():
                column = gr.Textbox(label="Column of a table", info="its name, or its number from 1")
                field = gr.Textbox(label="Field of JSON Lines", info="a.b is the field b of the object a")
                into = gr.Textbox(label="Column or field for the translations")
            with gr.Row():
                source = gr.Textbox(label="Source language", info="of a translation memory")
                target = gr.Textbox(label="Target language", info="of a translation memory or XLIFF")
        button = gr.Button("Translate the file", elem_id="pf-translate-file")
        said = own_html(show_state("empty", "The translated file comes here."), elem_id="pf-file-said")
        result = gr.File(label="Translated", interactive=False, visible=False, elem_id="pf-file-result")

    def answer(
        name: str, upload: str | None, prefix: str, column: str, field: str, into: str, source: str, target: str,
        progress: Any = gr.Progress(),  # noqa: B008 - Gradio looks for it there
    ) -> tuple[str, Any]:  # fmt: skip
        options = FormatOptions(column, None, field, into, source, target)
        shown, output = translate_upload(by_name[name], upload, options, progress, prefix)
        return shown, gr.update(value=output, visible=output is not None)

    inputs = [first, upload, prefix, column, field, into, source, target]
    button.click(answer, inputs, [said, result], show_progress_on=said, api_visibility="private")
