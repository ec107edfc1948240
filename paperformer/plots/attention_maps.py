"""Attention weights of a text as heat maps, one for each layer and head (Bahdanau et al. 2015, figure 3).

Shapes: L layers, H heads, T queries, S keys.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..training.console.input_error import InputError
from ..training.evaluation.decoding import generate
from .lines import style_scale
from .token_labels import find_drawable_labels, read_tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches.
PAPER_WIDTH = 6.5  # the maps of a figure together, if their cells then stay within the next two bounds
LARGEST_CELL, READABLE_CELL = 0.35, 0.125
LARGEST_SIDE = 24.0
SMALLEST_MAP = 0.9  # wide enough for its title
COLUMN_GAP, ROW_GAP, WORD_GAP = 0.12, 0.28, 0.12
BAR_WIDTH, LARGEST_BAR = 0.12, 4.0
SHARP_CELL = 0.02  # cells that are no larger are drawn as means of several, so that none falls between two pixels
# Points.
POINTS = 72.0  # an inch
SMALLEST_FONT, AXIS_SIZE, TITLE_SIZE = 5.5, 9.0, 11.0


@dataclass(frozen=True)
class Tokens:
    """The tokens along one side of a map."""

    role: str
    labels: list[str]


@dataclass(frozen=True)
class AttentionMaps:
    """What the queries of one part of a model look at, for a text."""

    name: str
    queries: Tokens
    keys: Tokens
    weights: torch.Tensor
    """(L, H, T, S); each row sums to 1."""


@torch.inference_mode()
def collect_attention(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    target: str | None = None,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> dict[str, AttentionMaps]:
    """The attention of every part of a model: `encoder`, `decoder` and `cross`, or `self` where there is one stack.

    Args:
        model: of any family, loaded with attn_implementation="eager".
        text: the source of an encoder-decoder, else the text itself.
        target: for an encoder-decoder, the text that the decoder is made to write; None: the model's own translation.
        target_tokenizer: of what the decoder writes, for a model with two vocabularies.

    Raises:
        InputError: if a text is empty, longer than the model takes, or not wanted; if the model has no weights to show.
    """
    model.eval()
    if getattr(model.config, "linear_attention", False):
        raise InputError("the model has linear attention, which never computes weights; there is nothing to draw")
    if target is not None and not model.config.is_encoder_decoder:
        raise InputError(f"--target is for encoder-decoders; this model is a {model.config.model_type}")

    writer = tokenizer if target_tokenizer is None else target_tokenizer

    def tokens(role: str, ids: torch.Tensor, tokenizer: PreTrainedTokenizerBase = tokenizer) -> Tokens:
        return Tokens(role, read_tokens(tokenizer, ids[0].tolist()))

    input_ids = _encode(model, tokenizer, text, "--text")
    if not model.config.is_encoder_decoder:
        own = tokens("token", input_ids)
        attentions = model(input_ids=input_ids, output_attentions=True).attentions
        return {"self": AttentionMaps("Self-attention", own, own, _stack(attentions))}

    labels = _translate(model, input_ids) if target is None else _encode(model, writer, target, "--target")
    untyped: Any = model
    decoder_input_ids = untyped.prepare_decoder_input_ids_from_labels(labels)
    outputs = model(input_ids=input_ids, decoder_input_ids=decoder_input_ids, output_attentions=True)
    source, read = tokens("source token", input_ids), tokens("decoder input", decoder_input_ids, writer)
    # To write a token the decoder looks at the source, so that token names the row, not the one before it that is read.
    written = tokens("token to be written", labels, writer)
    return {
        "encoder": AttentionMaps("Encoder self-attention", source, source, _stack(outputs.encoder_attentions)),
        "decoder": AttentionMaps("Decoder self-attention", read, read, _stack(outputs.decoder_attentions)),
        "cross": AttentionMaps("Cross-attention", written, source, _stack(outputs.cross_attentions)),
    }


def _translate(model: PreTrainedModel, input_ids: torch.Tensor) -> torch.Tensor:
    """What the model writes as it decodes by default, (1, T), and at most as long as `paperformer translate` allows."""
    longest = min(2 * input_ids.shape[1] + 20, model.config.max_position_embeddings - 1)
    mask = torch.ones_like(input_ids)
    output = generate(model, input_ids=input_ids, attention_mask=mask, do_sample=False, max_new_tokens=longest)
    return output[:, 1:]  # without the token that starts it


def _encode(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str, option: str) -> torch.Tensor:
    """Token ids, (1, T), as in training: a language model's text begins with <s>."""
    if not text:
        raise InputError(f"{option} is empty; it must have text")
    ids: list[int] = tokenizer(text).input_ids
    if model.can_generate() and not model.config.is_encoder_decoder and tokenizer.bos_token_id not in (None, *ids[:1]):
        ids = [tokenizer.bos_token_id, *ids]
    longest = model.config.max_position_embeddings
    if len(ids) > longest:
        raise InputError(f"{option} has {len(ids)} tokens; the model takes at most {longest}")
    return torch.tensor([ids], device=model.device)


def _stack(attentions: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.cat(attentions).float().cpu()  # L x (1, H, T, S) -> (L, H, T, S)


def draw_attention(
    attention: AttentionMaps, model_name: str, layers: Sequence[int], heads: Sequence[int], *, highest: float = 1.0
) -> "Figure":
    """Heat maps of some layers and heads on one colour scale, with the tokens on the axes.

    Layers are rows and heads are columns where there are several of both. The figure has the size of the maps, and all
    words stand around it, so it is to be saved with a tight bounding box. It grows with the number of tokens; where it
    would grow beyond `LARGEST_SIDE`, only every n-th token is written, and the axis says so.

    Args:
        attention: the weights and their tokens.
        model_name: for the title.
        layers, heads: which ones, counted from 0.
        highest: the weight with the darkest colour; 0 has the lightest.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    maps = [(layer, head) for layer in layers for head in heads]
    columns = len(heads) if len(layers) > 1 and len(heads) > 1 else _count_columns(len(maps))
    rows = len(maps) // columns
    (queries, keys), families = find_drawable_labels(attention.queries.labels, attention.keys.labels)

    cell = _choose_cell_size(len(queries), len(keys), rows, columns)
    size = min(9.0, max(SMALLEST_FONT, 0.7 * cell * POINTS))  # of the tokens, in points
    every = math.ceil(1.3 * size / POINTS / cell)
    style: dict[str, Any] = {"fontsize": size, "fontfamily": families, "parse_math": False}

    column_gap, row_gap = COLUMN_GAP / (cell * len(keys)), ROW_GAP / (cell * len(queries))  # in widths of a map
    width = cell * len(keys) * (columns + (columns - 1) * column_gap)
    height = cell * len(queries) * (rows + (rows - 1) * row_gap)
    figure = Figure((width, height))
    FigureCanvasAgg(figure)  # measures all words with one renderer; without it, each would make its own
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1, wspace=column_gap, hspace=row_gap)
    grid = figure.subplots(rows, columns, squeeze=False)
    for (layer, head), axes in zip(maps, grid.flat, strict=True):
        image = axes.imshow(
            attention.weights[layer, head].numpy(),
            cmap="Blues",
            vmin=0.0,
            vmax=highest,
            aspect="auto",
            interpolation="none" if cell > SHARP_CELL else None,
        )
        axes.set_title(f"layer {layer}, head {head}", fontsize=8, pad=3)
        axes.tick_params(length=2, pad=2, width=0.6)
        axes.set(xticks=[], yticks=[])  # the tokens are written once, below and on the left
    for axes in grid[:, 0]:
        axes.set_yticks(range(0, len(queries), every), queries[::every], **style)
    for axes in grid[-1]:
        axes.set_xticks(range(0, len(keys), every), keys[::every], **style)
        if max(label.get_window_extent().width for label in axes.get_xticklabels()) > 0.9 * cell * figure.dpi:
            axes.tick_params(axis="x", rotation=90)

    bar_height = min(1.0, LARGEST_BAR / height)
    bar = figure.add_axes((1 + BAR_WIDTH / width, 1 - bar_height, BAR_WIDTH / width, bar_height))
    figure.colorbar(image, cax=bar, label="attention weight")
    style_scale(bar)
    thinned = "" if every == 1 else f", 1 in {every} labelled"
    _write_beside(figure, f"{attention.queries.role} (query){thinned}", rotation=90, ha="right", va="center")
    _write_beside(figure, f"{attention.keys.role} (key){thinned}", ha="center", va="top")
    _write_beside(figure, f"{attention.name} of {model_name}", ha="center", va="bottom", size=TITLE_SIZE)
    return figure


def _write_beside(figure: "Figure", text: str, *, ha: str, va: str, size: float = AXIS_SIZE, rotation: int = 0) -> None:
    """Writes a text outside of all that the figure has so far: left of it, below or above, as its alignment says."""
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    x = box.x0 / width - WORD_GAP / width if ha == "right" else 0.5
    y = {"center": 0.5, "top": (box.y0 - WORD_GAP) / height, "bottom": (box.y1 + WORD_GAP) / height}[va]
    figure.text(x, y, text, ha=ha, va=va, fontsize=size, rotation=rotation, parse_math=False)


def _count_columns(maps: int) -> int:
    """The columns of the squarest full rectangle that is at least as wide as high."""
    return next(n for n in range(math.isqrt(maps - 1) + 1, maps + 1) if maps % n == 0)


def _choose_cell_size(queries: int, keys: int, rows: int, columns: int) -> float:
    """Inches of a cell: one query, one key."""
    smallest = SMALLEST_MAP / keys
    preferred = min(max(LARGEST_CELL, smallest), max(READABLE_CELL, PAPER_WIDTH / (columns * keys)))
    return max(smallest, min(preferred, LARGEST_SIDE / (columns * keys), LARGEST_SIDE / (rows * queries)))
