"""The tab of language models: a text continued token by token, and a text read."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import gradio as gr

from ...training.console.input_error import InputError
from ..continuing import Dials, Step, continue_text
from ..markup import show_candidates, show_heat, show_state, show_written
from ..models import ShownModel
from ..surprisal import read_surprisals
from .widgets import QUIET, own_html

SECONDS_BETWEEN = 0.1
"""Between two looks at a text that grows, each of which is sent as a whole."""

NOTHING_YET = "What the model writes comes here, with the tokens that might have come next."


@dataclass
class Writing:
    """A text that a visitor lets a model write."""

    dials: Dials = field(default_factory=Dials)
    prompt: str = ""
    steps: list[Step] = field(default_factory=list)
    coming: Iterator[Step] | None = None
    """The tokens to come; None where nothing was begun."""
    model: ShownModel | None = None
    most: int = 0
    """Tokens that were asked for."""

    is_over: bool = False
    """Whether nothing more comes."""

    def begin(self, model: ShownModel, prompt: str, max_new_tokens: int, seed: int) -> None:
        """Forgets what there was, and gets ready to write.

        Raises:
            InputError: if the model cannot be loaded.
        """
        self.stop()
        # Dials of its own, so that what still runs elsewhere stays stopped.
        self.dials = Dials(self.dials.temperature, self.dials.top_p)
        with model.lock:
            writer = model.writer
        self.model, self.prompt, self.steps = model, prompt, []
        self.most, self.is_over = max_new_tokens, False
        self.coming = continue_text(
            writer.model, writer.tokenizer, prompt, self.dials, max_new_tokens=max_new_tokens, seed=seed
        )

    def stop(self) -> None:
        """Lets what is being written end behind the token that it is at."""
        self.dials.is_stopped = True

    def go_on(self) -> bool:
        """Writes a token; whether there was one more to write."""
        assert self.coming is not None
        assert self.model is not None
        with self.model.lock:
            step = next(self.coming, None)
        if step is not None:
            self.steps.append(step)
        self.is_over = step is None and not self.dials.is_stopped
        return step is not None

    def show(self) -> tuple[str, str]:
        """The text, why nothing more comes if that is so, and what might have come for its last token."""
        why = show_state("note", self._why_over()) if self.is_over else ""
        return show_written(self.prompt, self.steps) + why, show_candidates(self.steps[-1]) if self.steps else ""

    def _why_over(self) -> str:
        if self.steps and self.steps[-1].is_end:
            return "The model has ended the text. Write begins anew."
        if len(self.steps) >= self.most:
            return f"These are the {self.most:,} tokens that were asked for. Write begins anew, with as many as chosen."
        return "The text is as long as the model takes. Write begins anew."


def write(writing: Writing, model: ShownModel, prompt: str, length: int, seed: int) -> Iterator[tuple[str, str]]:
    """The page's answer to a prompt: the text as it grows."""
    yield show_state("busy", f"{model.name} begins to write"), ""
    try:
        writing.begin(model, prompt, length, seed)
        dials, shown = writing.dials, 0.0
        while not dials.is_stopped and writing.go_on():
            if time.monotonic() > shown + SECONDS_BETWEEN:
                yield writing.show()
                shown = time.monotonic()
    except InputError as error:
        yield show_state("failed", str(error)), ""
        return
    if not dials.is_stopped or dials is writing.dials:
        yield writing.show()


def write_token(writing: Writing, model: ShownModel, prompt: str, length: int, seed: int) -> tuple[str, str]:
    """One token more; the first, where nothing was begun, or the prompt or the model is another now."""
    try:
        if writing.coming is None or writing.prompt != prompt or writing.model is not model:
            writing.begin(model, prompt, length, seed)
        writing.dials.is_stopped = False
        writing.go_on()
    except InputError as error:
        return show_state("failed", str(error)), ""
    finally:
        writing.stop()
    return writing.show()


def read(model: ShownModel, text: str) -> Iterator[str]:
    """The page's answer to a pasted text: how it surprises the model."""
    yield show_state("busy", f"{model.name} reads it")
    try:
        with model.lock:
            yield show_heat(read_surprisals(model.writer.model, model.writer.tokenizer, text))
    except InputError as error:
        yield show_state("failed", str(error))


def add_language_tab(models: Sequence[ShownModel]) -> None:
    """Adds the widgets to the tab that is open."""
    by_name = {model.name: model for model in models}
    chosen = gr.Dropdown(list(by_name), value=models[0].name, label="Model", visible=len(models) > 1)
    writing = gr.State(Writing())
    prompt = gr.Textbox(models[0].example, label="Beginning", lines=2, elem_id="pf-prompt")
    with gr.Row():
        temperature = gr.Slider(0, 2, 0.8, step=0.05, label="Temperature", info="can be changed while it writes")
        top_p = gr.Slider(0.05, 1, 0.95, step=0.05, label="Top-p", info="can be changed while it writes")
        length = gr.Slider(1, 500, 120, step=1, label="Tokens at the most")
        seed = gr.Number(1, label="Seed", precision=0, minimum=0)
    with gr.Row():
        go = gr.Button("Write", variant="primary", elem_id="pf-write")
        one = gr.Button("One token", elem_id="pf-one")
        stop = gr.Button("Stop", elem_id="pf-stop")
    with gr.Row(elem_id="pf-writing"):
        text = own_html(show_state("empty", NOTHING_YET), elem_id="pf-text")
        candidates = own_html("", elem_id="pf-next")

    def start(writing: Writing, name: str, prompt: str, length: float, seed: float) -> Iterator[tuple[str, str]]:
        yield from write(writing, by_name[name], prompt, int(length), int(seed or 0))

    def step(writing: Writing, name: str, prompt: str, length: float, seed: float) -> tuple[str, str]:
        return write_token(writing, by_name[name], prompt, int(length), int(seed or 0))

    def turn(writing: Writing, temperature: float, top_p: float) -> None:
        writing.dials.temperature, writing.dials.top_p = temperature, top_p

    asked = [writing, chosen, prompt, length, seed]
    shown = [text, candidates]
    go.click(start, asked, shown, **QUIET)
    one.click(step, asked, shown, **QUIET)
    stop.click(Writing.stop, [writing], None, queue=False, **QUIET)
    for dial in (temperature, top_p):
        dial.change(turn, [writing, temperature, top_p], None, queue=False, **QUIET)

    with gr.Accordion("How a text surprises the model", open=False, elem_id="pf-read-part"):
        pasted = gr.Textbox(models[0].example, label="Text to read", lines=4, elem_id="pf-pasted")
        button = gr.Button("Read", elem_id="pf-read")
        heat = own_html(show_state("empty", "The text comes here, the darker the more surprising."), elem_id="pf-heat")

    def answer(name: str, text: str) -> Iterator[str]:
        yield from read(by_name[name], text)

    button.click(answer, [chosen, pasted], heat, **QUIET)
