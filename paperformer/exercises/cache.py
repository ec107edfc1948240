"""What the cache of keys and values is worth: the same tokens written with it and without it, and the time of both."""

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from ..api.texts import place_of
from ..commands.loading import load_model, model_name
from ..configuration.configuration_lm import PaperformerLMConfig
from ..modeling.modeling_lm import PaperformerForCausalLM
from ..plots.figure_file import check_figure_path, save_figure
from ..plots.lines import style_axes
from ..training.console.input_error import InputError
from ..training.console.progress import ProgressBar, say
from ..training.evaluation.decoding import generate
from ..training.reporting.markdown import markdown_table
from .card import Card, write_card

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE = "speed.svg"
PROMPT_TOKENS = 8
VOCAB_SIZE = 8000  # of a fresh model


def measure_cache(
    folder: Path,
    command: str,
    *,
    model: str | None,
    lengths: str,
    hidden_size: int,
    layers: int,
    repetitions: int,
    seed: int,
    trust_remote_code: bool,
) -> Path:
    """Lets a language model write the same tokens with and without a cache, and writes the card and its picture.

    Args:
        folder: of the exercise.
        command: for the card.
        model: its folder, its run's, or its name on the Hub; None for one with fresh weights, of which speed does not
            depend.
        lengths: how many tokens are written, with commas between.
        hidden_size, layers: of a fresh model.
        repetitions: how often each is measured; the median counts.
        seed: of the fresh weights and the prompt.
        trust_remote_code: as `load_model` takes it.

    Returns:
        The path of the card.

    Raises:
        InputError: if a number is out of range, or the model is no language model or cannot be loaded.
        SystemExit: with 1, after the card is written, if the tokens are not the same.
    """
    check_figure_path(str(folder / FIGURE))
    counts = read_lengths(lengths)
    if repetitions < 1:
        raise InputError(f"--repetitions is {repetitions}; it must be at least 1")
    torch.manual_seed(seed)
    loaded: PreTrainedModel
    longest = PROMPT_TOKENS + max(counts)
    if model is None:
        loaded, name = fresh_model(hidden_size, layers, longest), f"{layers} layers of {hidden_size}, weights fresh"
    else:
        place = place_of(model)
        loaded, name = load_model(place, "text-generation", trust_remote_code=trust_remote_code), model_name(place)
    most = getattr(loaded.config, "max_position_embeddings", longest)
    if longest > most:
        raise InputError(
            f"{model} takes {most:,} tokens; {max(counts):,} behind a prompt of {PROMPT_TOKENS} are too many: give "
            f"smaller --lengths"
        )
    prompt = torch.randint(10, loaded.config.vocab_size, (1, PROMPT_TOKENS), device=loaded.device)
    started = time.perf_counter()
    figures = [_measure(loaded, prompt, count, repetitions) for count in counts]
    differing = [of for of in figures if of["first_difference"] is not None]
    save_figure(_draw(figures), folder / FIGURE)
    equal = "The tokens are the same with and without it."
    if differing:
        places = ", ".join(f"{of['tokens']:,} tokens: from token {of['first_difference']:,} on" for of in differing)
        equal = f"THE TOKENS DIFFER with and without it ({places})."
    card = Card(
        title="The cache of keys and values",
        summary=f"Greedy continuations of {PROMPT_TOKENS} tokens by a model ({name}; {loaded.num_parameters():,} "
        "parameters), with the keys and values of earlier tokens kept, and with all of them computed again for each "
        f"token. Measured in turn, and the median of {repetitions} each; threads: {torch.get_num_threads()}. {equal}",
        sections=["## Results", _table(figures), f"![Tokens a second by length]({FIGURE})"],
        figures=figures,
        command=command,
        seed=seed,
        minutes=(time.perf_counter() - started) / 60,
        software=("paperformer", "torch", "transformers"),
    )
    path = write_card(folder, card)
    if differing:
        say(f"error: {equal} {path}")
        sys.exit(1)
    return path


def read_lengths(lengths: str) -> list[int]:
    """Whole numbers with commas between.

    Raises:
        InputError: if they are not, or if one is below 1.
    """
    words = lengths.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise InputError(f"--lengths is {lengths}; it must be whole numbers from 1 with commas between: 50,200,1000")
    return [int(word) for word in words]


def fresh_model(hidden_size: int, layers: int, longest: int) -> PaperformerForCausalLM:
    """A language model with fresh weights and no end mark.

    Raises:
        InputError: if there is no model of that size.
    """
    if hidden_size < 32 or hidden_size % 32 or layers < 1:
        raise InputError(
            f"--hidden_size is {hidden_size} and --layers {layers}; the first must be a multiple of 32, the width of a "
            "head, and the second at least 1"
        )
    config = PaperformerLMConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden_size,
        intermediate_size=8 * hidden_size // 3,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 32,
        max_position_embeddings=longest,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return PaperformerForCausalLM(config).eval()


def _measure(model: PreTrainedModel, prompt: torch.Tensor, count: int, repetitions: int) -> dict[str, Any]:
    seconds: dict[bool, list[float]] = {True: [], False: []}
    outputs: dict[bool, torch.Tensor] = {}
    write(model, prompt, min(count, 5), use_cache=True)  # what the first call sets up is not measured
    with ProgressBar(total=2 * repetitions, desc=f"{count:,} tokens", unit=" times") as bar:
        for _ in range(repetitions):
            for use_cache in (True, False):  # by turns, so that what else the machine does hits both
                started = time.perf_counter()
                outputs[use_cache] = write(model, prompt, count, use_cache=use_cache)
                seconds[use_cache].append(time.perf_counter() - started)
                bar.update()
    on, off = (statistics.median(seconds[use_cache]) for use_cache in (True, False))
    return {
        "tokens": count,
        "seconds_with": on,
        "seconds_without": off,
        "tokens_per_second_with": count / on,
        "tokens_per_second_without": count / off,
        "speed_up": off / on,
        "first_difference": first_difference(outputs[True], outputs[False]),
    }


def write(model: PreTrainedModel, prompt: torch.Tensor, count: int, *, use_cache: bool) -> torch.Tensor:
    """So many tokens behind a prompt, the likeliest each time: (1, P) -> (1, count)."""
    output = generate(
        model,
        input_ids=prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        num_beams=1,
        min_new_tokens=count,
        max_new_tokens=count,
        use_cache=use_cache,
    )
    if output.is_cuda:
        torch.cuda.synchronize()
    return output[:, prompt.shape[1] :]


def first_difference(a: torch.Tensor, b: torch.Tensor) -> int | None:
    """The number, from 1, of the first token in which two texts (1, T) differ; None if they do not."""
    places = (a != b)[0].nonzero()
    return int(places[0]) + 1 if len(places) else None


def _table(figures: Sequence[dict[str, Any]]) -> str:
    titles = ["Tokens", "Seconds with", "Seconds without", "Tokens/s with", "Tokens/s without", "Times as fast"]
    rows = [
        [
            f"{of['tokens']:,}",
            f"{of['seconds_with']:.2f}",
            f"{of['seconds_without']:.2f}",
            f"{of['tokens_per_second_with']:,.0f}",
            f"{of['tokens_per_second_without']:,.0f}",
            f"{of['speed_up']:.1f}",
        ]
        for of in figures
    ]
    return markdown_table(titles, rows, right=range(len(titles)))


def _draw(figures: Sequence[dict[str, Any]]) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure((7.2, 3.2), layout="constrained")
    speed, gain = figure.subplots(1, 2)
    counts = [of["tokens"] for of in figures]
    for kind in ("with", "without"):
        speed.plot(counts, [of[f"tokens_per_second_{kind}"] for of in figures], marker="o", label=f"{kind} a cache")
    gain.plot(counts, [of["speed_up"] for of in figures], marker="o", color="black")
    for axes in (speed, gain):
        axes.set_xscale("log")
        axes.set_xticks(counts, [f"{count:,}" for count in counts], minor=False)
        axes.minorticks_off()
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    style_axes(speed, x="tokens written", y="tokens a second")
    style_axes(gain, x="tokens written", y="times as fast with a cache")
    return figure
