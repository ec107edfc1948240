"""Commands that draw what a model does, or how its training went."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ..api.given_models import place_of
from ..training.console.input_error import InputError
from .loading import load_model, load_target_tokenizer, load_tokenizer, model_name


def plot_attention(
    model: str,
    text: str = "",
    target: str | None = None,
    part: Literal["self", "encoder", "decoder", "cross"] | None = None,
    layer: int | Literal["all"] = "all",
    head: int | Literal["all"] = "all",
    scale: Literal["one", "max"] = "one",
    output: str = "attention.svg",
    trust_remote_code: bool = False,
) -> None:
    """Draw what each token of a text attends to: a heat map for each layer and head, rows are queries, columns keys.

    Args:
        model: A model's folder of any family, its name on the Hub, or that of one that comes with paperformer.
        text: What the model reads; for a translation model the source.
        target: For a translation model, the translation that it is made to write; by default its own.
        part: Which attention of a translation model: of the encoder, of the decoder to itself, or across from the
            decoder to the source (cross, the default). Other models have one: self.
        layer: Number of a layer, counted from 0 as in the names of the weights, or all.
        head: Number of a head, counted from 0, or all.
        scale: The darkest colour: a weight of one, the same in every figure, or the max of this figure, which shows
            more of long texts.
        output: File to write, .svg or .png.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..plots.attention_maps import collect_attention, draw_attention
    from ..plots.figure_file import check_figure_path, save_figure

    path, model = check_figure_path(output), place_of(model)
    # The one implementation that shows its weights.
    loaded = load_model(model, trust_remote_code=trust_remote_code, attn_implementation="eager")
    tokenizer = load_tokenizer(model, trust_remote_code=trust_remote_code)
    maps = collect_attention(loaded, tokenizer, text, target, load_target_tokenizer(loaded))
    chosen = part or ("cross" if "cross" in maps else "self")
    if chosen not in maps:
        raise InputError(f"--part is {chosen}; a {loaded.config.model_type} has {', '.join(maps)}")
    weights = maps[chosen].weights
    layers, heads = _select("--layer", layer, weights.shape[0]), _select("--head", head, weights.shape[1])
    highest = 1.0 if scale == "one" else float(weights[layers][:, heads].max())
    save_figure(draw_attention(maps[chosen], model_name(model), layers, heads, highest=highest), path)
    print(path)


def plot_positions(model: str, length: int | None = None, output: str = "positions.svg") -> None:
    """Draw what a model knows of positions: their vectors and similarities, RoPE's scores by distance, or the biases.

    Args:
        model: A paperformer model's folder, its name on the Hub, or that of one that comes with paperformer.
        length: How many positions to draw; by default 128, or all if the model takes fewer.
        output: File to write, .svg or .png.
    """
    from ..plots.figure_file import check_figure_path, save_figure
    from ..plots.position_schemes import draw_positions

    if length is not None and length < 2:
        raise InputError(f"--length is {length}; it must be at least 2")
    path, model = check_figure_path(output), place_of(model)
    loaded = load_model(model, device_map="cpu")
    length = length or min(128, loaded.config.max_position_embeddings)
    save_figure(draw_positions(loaded, model_name(model), length), path)
    print(path)


def plot_gradients(run: str, heatmap: bool = False, output: str = "gradients.svg") -> None:
    """Draw the gradient norm of each layer over a training run: layers that stop learning, and those that blow up.

    Args:
        run: A run's folder, such as runs/NAME; its metrics.jsonl is read, also while the run goes on.
        heatmap: Add a map of layer by step below the lines.
        output: File to write, .svg or .png.
    """
    from ..plots.figure_file import check_figure_path, save_figure
    from ..plots.gradient_norms import draw_gradients, read_gradient_history

    path = check_figure_path(output)
    history = read_gradient_history(Path(run))
    save_figure(draw_gradients(history, Path(run).resolve().name, heatmap=heatmap), path)
    print(path)


PLOTS: dict[str, Callable[..., None]] = {
    "attention": plot_attention,
    "positions": plot_positions,
    "gradients": plot_gradients,
}


def _select(option: str, number: int | Literal["all"], count: int) -> list[int]:
    """The one number, or all numbers below `count`."""
    if number == "all":
        return list(range(count))
    if not 0 <= number < count:
        raise InputError(f"{option} is {number}; it must be from 0 to {count - 1}, or all")
    return [number]
