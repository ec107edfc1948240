"""Pictures of options, drawn by the functions that compute them."""

from collections.abc import Callable
from pathlib import Path

import torch
from matplotlib.figure import Figure

from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.modeling.feed_forward import build_activation
from paperformer.modeling.masks import local_pattern, strided_pattern
from paperformer.modeling.positions import build_positions
from paperformer.plots.figure_file import save_figure
from paperformer.plots.lines import style_axes
from paperformer.training.engine.schedules import learning_rate
from paperformer.training.recipe.optimization import Optimization

LENGTH = 32


def draw_activations() -> Figure:
    """Every non-linearity, from -4 to 4."""
    figure = Figure((6, 3), layout="constrained")
    axes, x = figure.subplots(), torch.linspace(-4, 4, 200)
    for name in ("relu", "gelu", "gelu_new", "silu", "sigmoid"):
        axes.plot(x.numpy(), build_activation(PaperformerLMConfig(hidden_act=name))(x).numpy(), label=name)
    style_axes(axes, x="input", y="output")
    return figure


def draw_schedules() -> Figure:
    """Every schedule over 1,000 steps, 100 of them warm-up."""
    figure = Figure((6, 3), layout="constrained")
    axes, steps = figure.subplots(), range(1, 1001)
    for name in ("inverse_sqrt", "cosine", "linear", "wsd", "constant"):
        options = Optimization(max_steps=1000, warmup_steps=100, schedule=name, learning_rate=1.0)
        axes.plot(steps, [learning_rate(options, step, 512) for step in steps], label=name)
    style_axes(axes, x="step of 1,000", y="share of the peak")
    return figure


def draw_patterns() -> Figure:
    """What a query of a language model sees: all, a window, a stride, both."""
    places = torch.arange(LENGTH)
    query, key = places[:, None], places[None]
    window, stride = (pattern(4)(places[0], places[0], query, key) for pattern in (local_pattern, strided_pattern))
    shown = {
        "no pattern": torch.ones(LENGTH, LENGTH).bool(),
        "attention_window 4": window,
        "attention_stride 4": stride,
        "both": window | stride,
    }
    figure = Figure((9, 2.6), layout="constrained")
    for axes, (title, pattern) in zip(figure.subplots(1, 4), shown.items(), strict=True):
        axes.imshow(pattern & (key <= query), cmap="Blues", vmax=1.4, interpolation="none")
        style_axes(axes, title=title, x="key", y="query", is_open=False)
    return figure


def draw_positions() -> Figure:
    """Where order enters: vectors added to the embeddings, and what is added to the scores of attention."""
    torch.manual_seed(1)
    places, states = torch.arange(LENGTH)[None], torch.zeros(1, LENGTH, 64)
    figure = Figure((9, 2.8), layout="constrained")
    panels = figure.subplots(1, 3)

    def build(scheme: str) -> torch.nn.Module:
        config = PaperformerLMConfig(
            hidden_size=64, num_attention_heads=4, num_key_value_heads=4, position_embedding_type=scheme
        )
        return build_positions(config, is_causal=True)

    panels[0].imshow(build("sinusoidal").add_to(states, places)[0], cmap="RdBu", aspect="auto")
    style_axes(panels[0], title="sinusoidal: added to embeddings", x="dimension", y="position", is_open=False)
    bias = build("alibi").attention_bias(states, places, None, None)[0, 2]
    panels[1].imshow(bias.masked_fill(places > places.T, float("nan")), cmap="Blues_r")
    style_axes(panels[1], title="alibi: added to scores (a head)", x="key", y="query", is_open=False)
    cosines, _ = build("rope").rotation(states, places)
    panels[2].plot(cosines[0, :, :3].numpy(), label=["0", "1", "2"])
    style_axes(panels[2], title="rope: cosines of the first pairs", x="position")
    return figure


DRAWN: dict[str, Callable[[], Figure]] = {
    "activations.svg": draw_activations,
    "schedules.svg": draw_schedules,
    "patterns.svg": draw_patterns,
    "positions.svg": draw_positions,
}


def draw_all(folder: Path) -> None:
    """Draws every picture into a folder."""
    with torch.no_grad():
        for name, draw in DRAWN.items():
            save_figure(draw(), folder / name)
