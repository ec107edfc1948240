"""What the page shows as HTML; every text of a model or of a visitor is escaped. `pages/demo.css` has the looks."""

import base64
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

import numpy as np

from ..serving.engines.masks import Filling
from ..training.reporting.side_by_side import mark_words
from .attention import WordAttention
from .beams import Branch, SearchedText, Translation, grow_tree
from .continuing import Step
from .surprisal import Surprisals

State = Literal["empty", "busy", "failed", "note"]

HOTTEST = 8.0
"""Nats: what is as surprising, or more, has the darkest colour."""


def show_state(state: State, text: str) -> str:
    """What stands where there is nothing to show: nothing yet, something soon, or why not."""
    role = {"failed": "alert", "busy": "status"}.get(state, "note")
    return f'<p class="pf-state pf-{state}" role="{role}">{escape(text)}</p>'


def show_model(name: str, searched: SearchedText, attention: str, *, other: str = "", notes: Sequence[str] = ()) -> str:
    """All that a model makes of a text: its translation with its confidence, the others, and its attention.

    Args:
        name: of the model.
        searched: what it has found.
        attention: as `show_attention` has it, or why there is none.
        other: the best translation of a model beside it; words that it does not have are marked.
        notes: what a reader should know of it.
    """
    best, count = searched.translations[0], len(searched.translations)
    many = f"{count} best translations, and where they part" if count > 1 else "The translation, token by token"
    return "".join(
        [
            f'<section class="pf-model"><h3>{escape(name)}</h3>',
            *(show_state("note", note) for note in notes),
            _show_words(best),
            _show_difference(best.text, other) if other else "",
            '<p class="pf-hint">The darker a word, the less sure the model is of it. Point at one for its '
            "probability.</p>",
            f"<h4>{many}</h4>{show_tree(grow_tree(searched.translations), searched.translations)}",
            f"<h4>Attention</h4>{attention}</section>",
        ]
    )


def _show_words(translation: Translation) -> str:
    words = [
        f'<span class="pf-sure {"pf-mark" if _is_mark(translation, word.places) else ""}" tabindex="0" '
        f'style="--doubt:{1 - probability:.3f}" title="{probability:.1%}" '
        f'aria-label="{escape(word.text)}: {probability:.1%}">{escape(word.text)}</span>'
        for word, probability in translation.words
    ]
    return f'<p class="pf-translation" data-text="{escape(translation.text)}">{" ".join(words)}</p>'


def _is_mark(translation: Translation, places: Sequence[int]) -> bool:
    return all(translation.tokens[place].word is None for place in places)


def _show_difference(text: str, other: str) -> str:
    if text == other:
        return '<p class="pf-hint">Both models write the same.</p>'
    words = [escape(word) if is_known else f"<mark>{escape(word)}</mark>" for word, is_known in mark_words(text, other)]
    return f'<p class="pf-difference">Against the other model: {" ".join(words)}</p>'


def show_tree(root: Branch, translations: Sequence[Translation]) -> str:
    """A tree of translations: what they share once, and at each end the score of one."""
    return f'<div class="pf-scroll" tabindex="0"><ul class="pf-tree">{_show_branch(root, translations)}</ul></div>'


def _show_branch(branch: Branch, translations: Sequence[Translation]) -> str:
    tokens = "".join(
        f'<span class="pf-token" style="--doubt:{1 - probability:.3f}" '
        f'title="{escape(token.label)}: {probability:.1%}">{escape(token.text or token.label)}</span>'
        for token, probability in zip(branch.tokens, branch.probabilities, strict=True)
    )
    if branch.branches:
        below = "".join(_show_branch(each, translations) for each in branch.branches)
        return f'<li><div class="pf-run">{tokens}</div><ul>{below}</ul></li>'
    own = translations[branch.best]
    score = (
        f'<span class="pf-score" title="log-probability {own.log_probability:.3f} of {len(own.ids)} tokens">'
        f"<b>{branch.best + 1}</b> {own.score:.3f}</span>"
    )
    return f'<li><div class="pf-run">{tokens}{score}</div></li>'


def show_attention(attention: WordAttention) -> str:
    """The words of source and translation; `demo.js` shades one side by what the pointer is at on the other."""
    layers, heads, *_ = attention.weights.shape
    packed = base64.b64encode(np.round(attention.weights.clip(0, 1) * 255).astype(np.uint8).tobytes()).decode()
    selects = "".join(
        f'<label>{name} <select class="pf-{name.lower()}"><option value="mean">mean</option>'
        + "".join(f'<option value="{number}"{" selected" if number == chosen else ""}>{number}</option>'
                  for number in range(count))
        + "</select></label>"
        for name, count, chosen in (("Layer", layers, max(0, layers - 2)), ("Head", heads, None))
    )  # fmt: skip
    rows = "".join(
        f'<p class="pf-row" data-side="{side}"><span class="pf-side">{title}</span>'
        + "".join(f'<button type="button" class="pf-word" data-place="{place}">{escape(word)}</button>'
                  for place, word in enumerate(words))
        + "</p>"
        for side, title, words in (
            ("target", "translation", attention.targets),
            ("source", "source", attention.sources),
        )
    )  # fmt: skip
    return (
        f'<div class="pf-attention" data-layers="{layers}" data-heads="{heads}" data-weights="{packed}" '
        f'data-targets="{len(attention.targets)}" data-sources="{len(attention.sources)}">'
        f'<div class="pf-controls">{selects}</div>{rows}'
        '<p class="pf-hint" aria-live="polite">Point at a word, or go to it with Tab: of the translation, to see what '
        "the model looked at to write it; of the source, to see for what it was looked at.</p></div>"
    )


def show_written(prompt: str, steps: Iterable[Step]) -> str:
    """A prompt and what was written behind it, token by token, each with what else might have come."""
    tokens = "".join(
        f'<span class="pf-token" tabindex="0" data-step="{place}" style="--doubt:{1 - step.chosen.probability:.3f}" '
        f'title="{escape(step.chosen.label)}: {step.chosen.probability:.1%}">{escape(step.text)}</span>'
        for place, step in enumerate(steps)
    )
    return f'<div class="pf-written" aria-live="off"><span class="pf-prompt">{escape(prompt)}</span>{tokens}</div>'


def show_candidates(step: Step) -> str:
    """The likeliest next tokens: what the model gives them, and by which chance they are drawn."""
    shown = list(step.candidates)
    if step.chosen not in shown:
        shown.append(step.chosen)
    rows = "".join(
        f'<tr class="{"pf-chosen" if each == step.chosen else ""}">'
        f'<th scope="row"><code>{escape(each.label)}</code></th>'
        f'<td class="pf-bars"><i style="width:{each.probability:.2%}"></i>'
        f'<i class="pf-drawn" style="width:{each.chance:.2%}"></i></td>'
        f"<td>{each.probability:.1%}</td><td>{each.chance:.1%}</td></tr>"
        for each in shown
    )
    return (
        '<table class="pf-candidates"><caption>What might have come for the last token</caption>'
        '<thead><tr><th scope="col">token</th><th scope="col"><span class="pf-hidden">as bars</span></th>'
        f'<th scope="col">model</th><th scope="col">drawn</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def show_heat(found: Surprisals) -> str:
    """A text, each token the darker the more it surprises the model."""
    tokens = "".join(
        f'<span class="pf-heat" tabindex="0" style="--doubt:{_heat(nats):.3f}" title="{escape(token.label)}: '
        f'{"the first" if nats is None else f"{nats:.2f} nats, probability {math.exp(-nats):.2%}"}">'
        f"{escape(token.text)}</span>"
        for token, nats in zip(found.tokens, found.nats, strict=True)
    )
    figures = (
        f"Perplexity {found.perplexity:,.2f} a token, {found.bits_per_byte:.3f} bits a byte, "
        f"over {sum(value is not None for value in found.nats):,} tokens."
    )
    cut = len(found.tokens) < found.all_tokens
    note = show_state("note", f"The text has {found.all_tokens:,} tokens; the first {len(found.tokens):,} were read.")
    return (
        f'<p class="pf-figures">{figures}</p>{note if cut else ""}<div class="pf-text">{tokens}</div>'
        f'<p class="pf-hint">From <span class="pf-heat" style="--doubt:0">expected</span> to <span class="pf-heat" '
        f'style="--doubt:1">surprising ({HOTTEST:.0f} nats and more)</span>.</p>'
    )


def _heat(nats: float | None) -> float:
    return 0.0 if nats is None else min(1.0, nats / HOTTEST)


def show_fillings(fillings: Sequence[Sequence[Filling]]) -> str:
    """What may stand at each mask of a text."""
    tables = []
    for number, found in enumerate(fillings, start=1):
        rows = "".join(
            f'<tr><th scope="row"><code>{escape(each.token)}</code></th><td class="pf-bars"><i '
            f'style="width:{each.probability:.2%}"></i></td><td>{each.probability:.1%}</td></tr>'
            for each in found
        )
        tables.append(f'<table class="pf-candidates"><caption>Mask {number}</caption><tbody>{rows}</tbody></table>')
    return f'<div class="pf-beside">{"".join(tables)}</div>'


def show_file(summary: str, notes: Sequence[str]) -> str:
    """What came of a translated file."""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<p class="pf-figures">{escape(summary)}</p>' + (f'<ul class="pf-notes">{items}</ul>' if items else "")
