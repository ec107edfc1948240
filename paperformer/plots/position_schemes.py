"""What a model's position scheme does: its vectors, the decay of its scores with distance, or its bias.

Shapes: T positions, E hidden size, H heads, D head width, N distances.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ..modeling.positions import NoPositions
from ..training.console.input_error import InputError
from .lines import add_scale, draw_indexed_lines, style_axes, style_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

RANDOM_VECTORS = 200  # for the spread of RoPE's scores


@dataclass(frozen=True)
class PositionScheme:
    """The positions of one stack of a model."""

    stack: str
    """`encoder` or `decoder`; empty where there is one stack only."""

    module: NoPositions
    is_causal: bool
    """Whether the stack only looks back."""


def find_position_schemes(model: PreTrainedModel) -> list[PositionScheme]:
    """The position scheme of each stack; only the first one's where they are computed, and so the same in all stacks.

    Raises:
        InputError: if there is none that could be drawn.
    """
    schemes = []
    for name, module in model.named_modules():
        if isinstance(module, NoPositions):
            path = name.rpartition(".")[0]
            stack: Any = model.get_submodule(path)
            part = path.removeprefix(model.base_model_prefix).lstrip(".")
            schemes.append(PositionScheme(part, module, stack.layers[0].self_attn.is_causal))
    if not schemes:
        raise InputError(f"a {model.config.model_type} is no paperformer model; positions can only be drawn of these")
    if model.config.positions_enter == "nowhere":
        raise InputError(
            f"the model's position_embedding_type is {model.config.position_embedding_type}; there is nothing to draw"
        )
    is_learned = any(True for _ in schemes[0].module.parameters())
    return schemes if is_learned else schemes[:1]


@torch.no_grad()
def compute_position_table(scheme: PositionScheme, length: int, hidden_size: int) -> torch.Tensor:
    """What an absolute scheme adds to the embedding at positions 0 to T - 1, (T, E)."""
    return scheme.module.add_to(torch.zeros(1, length, hidden_size), torch.arange(length)[None])[0]


def compute_similarities(table: torch.Tensor) -> torch.Tensor:
    """The cosine of the angle between the vectors of any two positions, (T, E) -> (T, T)."""
    unit = torch.nn.functional.normalize(table, dim=-1)
    return unit @ unit.T


@torch.no_grad()
def compute_rotary_scores(scheme: PositionScheme, length: int, vectors: torch.Tensor) -> torch.Tensor:
    """Scores of vectors with themselves, 0 to N - 1 positions away, over their score without RoPE: (V, D) -> (V, N).

    For q = k the sines cancel in q R_n k, and what remains is the sum of q_i^2 cos(n theta_i) (Su et al. 2021, section
    3.4.3). For a vector of ones this is the mean of cos(n theta_i), and hence the mean over all random vectors.
    """
    rotation = scheme.module.rotation(vectors, torch.arange(length)[None])
    assert rotation is not None
    cosines = rotation[0][0]  # (N, D), times a scale in some variants of RoPE, which queries have as well
    squares = vectors.square()
    return squares @ cosines.T * cosines[0, 0] / squares.sum(-1, keepdim=True)


@torch.no_grad()
def compute_biases(scheme: PositionScheme, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What a relative scheme adds to the scores.

    Returns:
        Key position minus query position, (N,): up to `length` - 1 positions behind and, unless the stack only looks
        back, ahead. The bias of each head there, (H, N).
    """
    distances = torch.arange(length)
    pairs = torch.stack((torch.zeros_like(distances), distances), dim=1)  # (N, 2): one at 0, one so far ahead
    bias = scheme.module.attention_bias(torch.zeros(1), pairs, None, None)  # (N, H, 2, 2)
    assert bias is not None
    behind, ahead = bias[:, :, 1, 0].T, bias[:, :, 0, 1].T  # (H, N)
    if scheme.is_causal:
        return -distances.flip(0), behind.flip(1)
    return torch.cat((-distances.flip(0), distances[1:])), torch.cat((behind.flip(1), ahead[:, 1:]), dim=1)


def draw_positions(model: PreTrainedModel, model_name: str, length: int) -> "Figure":
    """What a model's scheme does over some positions.

    - vectors added to the embeddings: they themselves, and the cosine similarities of a few with all others;
    - RoPE: how the score of a query with an equal key falls with their distance, and the frequencies;
    - biases on the scores: that of each head by distance.

    Raises:
        InputError: if the model has no positions, or learned ones and fewer than `length`.
    """
    from matplotlib.figure import Figure

    schemes = find_position_schemes(model)
    place, limit = model.config.positions_enter, model.config.position_limit
    if limit is not None and length > limit:
        raise InputError(f"--length is {length}; the model has {limit} learned positions")
    figure = Figure((9.5, 0.3 + 3.5 * len(schemes)), layout="constrained")
    figure.suptitle(f"{schemes[0].module.title} of {model_name}", fontsize=11, parse_math=False)
    for part, scheme in zip(figure.subfigures(len(schemes), squeeze=False).flat, schemes, strict=True):
        if len(schemes) > 1:
            part.suptitle(scheme.stack, fontsize=10, fontweight="bold")
        left, right = part.subplots(1, 2)
        if place == "embeddings":
            _draw_table(part, left, right, compute_position_table(scheme, length, model.config.hidden_size))
        elif place == "rotation":
            _draw_scores(left, scheme, length, model.config.head_dim)
            _draw_frequencies(right, scheme, model.config.max_position_embeddings)
        else:
            _draw_biases(part, left, right, *compute_biases(scheme, length))
    return figure


def _draw_table(figure: "SubFigure", left: "Axes", right: "Axes", table: torch.Tensor) -> None:
    _draw_map(figure, left, table, (-0.5, table.shape[1] - 0.5, len(table) - 0.5, -0.5), "value")
    style_axes(left, title="vectors added to the embeddings", x="dimension", y="position (tokens)", is_open=False)
    similarities = compute_similarities(table)
    for position in np.unique(np.linspace(0, len(table) - 1, 5).round().astype(int)):
        right.plot(similarities[position].numpy(), linewidth=1.1, label=str(position))
    style_axes(right, title="similarity of a position (colour) with all", x="position (tokens)", y="cosine similarity")


def _draw_scores(axes: "Axes", scheme: PositionScheme, length: int, head_dim: int) -> None:
    random = torch.randn(RANDOM_VECTORS, head_dim, generator=torch.Generator().manual_seed(1))
    low, high = np.quantile(compute_rotary_scores(scheme, length, random).numpy(), (0.05, 0.95), axis=0)
    axes.axhline(0, color="0.6", linewidth=0.6)
    mean = compute_rotary_scores(scheme, length, torch.ones(1, head_dim))[0].numpy()
    axes.plot(mean, color="C0", linewidth=1.3, label="mean over random vectors")
    axes.fill_between(range(length), low, high, color="C0", alpha=0.2, linewidth=0, label="90 % of them")
    style_axes(axes, title="score of a query and an equal key", x="distance (tokens)", y="score / score without RoPE")


def _draw_frequencies(axes: "Axes", scheme: PositionScheme, limit: int) -> None:
    module: Any = scheme.module
    axes.semilogy(module.inv_freq.float().cpu().numpy(), "o", markersize=3, color="C0")
    axes.axhline(2 * math.pi / limit, color="0.4", linewidth=0.8, linestyle="--", label=f"one turn in {limit:,} tokens")
    style_axes(
        axes,
        title="rotation of the pairs of a head",
        x="pair of dimensions (i, i + D/2)",
        y="frequency (radians a token)",
    )
    wavelengths: Any = axes.secondary_yaxis("right", functions=(_turn, _turn))
    wavelengths.set_ylabel("wavelength (tokens)")
    style_scale(wavelengths)


def _turn(value: Any) -> Any:
    """Radians a token to tokens a turn, and back."""
    return 2 * math.pi / np.maximum(value, 1e-30)


def _draw_biases(figure: "SubFigure", left: "Axes", right: "Axes", distances: torch.Tensor, bias: torch.Tensor) -> None:
    away = "key position − query position (tokens)"
    style_axes(left, title="bias of each head", x=away, y="added to the score")
    draw_indexed_lines(figure, left, distances.tolist(), bias.tolist(), "head")
    edges = (float(distances[0]) - 0.5, float(distances[-1]) + 0.5, len(bias) - 0.5, -0.5)
    _draw_map(figure, right, bias, edges, "added to the score")
    style_axes(right, title="all heads", x=away, y="head", is_open=False)
    right.locator_params(axis="y", integer=True, min_n_ticks=1)  # its rows are heads


def _draw_map(
    figure: "SubFigure", axes: "Axes", values: torch.Tensor, edges: tuple[float, float, float, float], label: str
) -> None:
    """A heat map with 0 in white, blue below and red above; edges are left, right, bottom, top."""
    highest = float(values.abs().max())
    image = axes.imshow(values.numpy(), cmap="RdBu_r", vmin=-highest, vmax=highest, aspect="auto", extent=edges)
    add_scale(figure, axes, image, label)
