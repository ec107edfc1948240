"""How the place of the norms shapes gradients and hidden states at initialisation: docs/gradient_flow.md and .svg.

The model is close to the one that Xiong et al. (2020, arXiv 2002.04745, section 3) analyse: LayerNorm, ReLU, an inner
width equal to the hidden size, Xavier initialisation, and embeddings of unit variance. Nothing is trained: every figure
comes from one forward and one backward pass.
"""

import argparse
import platform
import shlex
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from paperformer import PaperformerForCausalLM, PaperformerLMConfig
from paperformer.training.engine.devices.hardware import describe_hardware

DOCS = Path(__file__).parent.parent / "docs"
HIDDEN_SIZE, HEADS, VOCAB_SIZE, BATCH_SIZE, LENGTH = 64, 4, 256, 8, 32
PLACEMENTS = {"post": "#d55e00", "pre": "#0072b2", "peri": "#009e73"}  # colours that the colour-blind can tell apart


class Flow(NamedTuple):
    """What one model shows, block by block."""

    gradient_norms: list[float]
    """Norm of the gradient of the feed-forward's second matrix; N of them, one a block."""

    variances: list[float]
    """||x||^2 / E of the residual stream, mean over tokens: what enters the first block, then what leaves each; N + 1.
    It is the variance, because the mean of random projections is zero."""


class Setting(NamedTuple):
    """A column of the figure."""

    layers: int
    weight_scale: float = 1.0

    def __str__(self) -> str:
        return f"{self.layers} blocks" + (f", weights × {self.weight_scale:g}" if self.weight_scale != 1 else "")


SETTINGS = (Setting(12), Setting(48), Setting(48, weight_scale=2.0))


def measure(norm_position: str, setting: Setting, seed: int) -> Flow:
    """Sends random tokens through a new language model, and its loss back.

    Args:
        norm_position: post, pre or peri.
        setting: the number of blocks, and by what the initial matrices of their sub-layers are multiplied.
        seed: of weights and tokens.
    """
    torch.manual_seed(seed)
    config = PaperformerLMConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN_SIZE,
        intermediate_size=HIDDEN_SIZE,
        num_attention_heads=HEADS,
        num_hidden_layers=setting.layers,
        hidden_act="relu",
        gated_mlp=False,
        use_bias=True,
        norm_type="layernorm",
        norm_position=norm_position,
        initialization="xavier",
        scale_embedding=True,
        tie_word_embeddings=False,
        use_cache=False,
    )
    model = PaperformerForCausalLM(config)
    blocks = model.model.layers
    variances: list[float] = []

    def record(states: Tensor) -> None:
        variances.append(states.detach().square().mean().item())

    blocks[0].register_forward_pre_hook(lambda _, inputs: record(inputs[0]))
    for block in blocks:
        block.register_forward_hook(lambda *arguments: record(arguments[-1]))
        for name, parameter in block.named_parameters():
            if name.endswith("proj.weight"):
                parameter.data.mul_(setting.weight_scale)

    tokens = torch.randint(VOCAB_SIZE, (BATCH_SIZE, LENGTH))
    model(tokens, labels=tokens).loss.backward()
    return Flow([block.mlp.down_proj.weight.grad.norm().item() for block in blocks], variances)


def summarise(flows: Sequence[Flow], summary: Callable[[Sequence[float]], float] = statistics.median) -> Flow:
    """Over seeds, block by block."""
    return Flow(*([summary(values) for values in zip(*field, strict=True)] for field in zip(*flows, strict=True)))


Figures = dict[str, dict[Setting, list[Flow]]]  # placement -> column -> a flow a seed
Medians = dict[str, dict[Setting, Flow]]


def draw(figures: Figures, path: Path) -> None:
    """Medians as lines, lowest to highest seed as bands; the same file, byte for byte, from the same figures."""
    from matplotlib import rc_context  # here, because tests use `measure` and need no plots
    from matplotlib.figure import Figure

    style = {"svg.hashsalt": path.stem, "axes.spines.top": False, "axes.spines.right": False}
    with rc_context(style):
        figure = Figure(figsize=(11, 6.2), layout="constrained")
        axes = figure.subplots(2, len(SETTINGS), sharex="col", sharey="row")
        for column, setting in enumerate(SETTINGS):
            for norm_position, color in PLACEMENTS.items():
                flows = figures[norm_position][setting]
                summaries = zip(summarise(flows), summarise(flows, min), summarise(flows, max), strict=True)
                for axis, (median, low, high) in zip(axes[:, column], summaries, strict=True):
                    blocks = range(setting.layers + 1)[-len(median) :]  # 0: what enters the first block
                    axis.fill_between(blocks, low, high, color=color, alpha=0.15, linewidth=0)
                    axis.plot(blocks, median, color=color, label=f"{norm_position}-norm", linewidth=1.8)
            axes[0, column].set_title(str(setting))
            axes[1, column].set_xlabel("block")
            axes[1, column].set_xticks(range(0, setting.layers + 1, setting.layers // 4))
        for row, label in zip(axes, ("gradient norm", "variance of the residual stream"), strict=True):
            row[0].set_ylabel(label)
            row[0].set_yscale("log")
            for axis in row:
                axis.grid(alpha=0.25)
        axes[1, 0].legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})


def table(medians: Medians) -> str:
    """The figure's medians as Markdown."""
    lines = [
        "| norms | model | gradient norm: first block | middle | last | variance after the first block | last |",
        "|---|---|---|---|---|---|---|",
    ]
    for norm_position, row in medians.items():
        for setting, (gradients, variances) in row.items():
            shown = " | ".join(f"{gradients[i]:.3f}" for i in (0, setting.layers // 2, -1))
            lines.append(f"| {norm_position} | {setting} | {shown} | {variances[1]:.2f} | {variances[-1]:.1f} |")
    return "\n".join(lines)


def prose(text: str) -> str:
    """Paragraphs, filled again after their figures are in."""
    return "\n\n".join(
        textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)
        for paragraph in text.strip().split("\n\n")
    )


def explanation(figures: Figures, medians: Medians) -> str:
    """What the papers predict, beside what was measured."""
    shallow, deep, scaled = SETTINGS
    depth = deep.layers
    post, pre, peri = (medians[norm_position] for norm_position in ("post", "pre", "peri"))

    def last_gradient(row: dict[Setting, Flow]) -> float:
        return row[deep].gradient_norms[-1] / row[shallow].gradient_norms[-1]

    def predicted_last_gradient(row: dict[Setting, Flow]) -> float:
        return (row[shallow].variances[-1] / row[deep].variances[-1]) ** 0.5

    def first_to_last(row: dict[Setting, Flow]) -> float:
        return row[deep].gradient_norms[0] / row[deep].gradient_norms[-1]

    def unevenness(row: dict[Setting, Flow]) -> float:
        gradients, variances = row[deep]
        products = [gradient * variance**0.5 for gradient, variance in zip(gradients, variances[1:], strict=True)]
        return max(products) / min(products)

    def seed_to_seed(norm_position: str) -> float:
        first = [flow.gradient_norms[0] for flow in figures[norm_position][deep]]
        return max(first) / min(first)

    return prose(f"""
**Variance.** Post-norm resets it to 1 after every sub-layer. In pre-norm every sub-layer adds to it, and after *l*
blocks it lies between 1 + *l*/2 and 1 + 3*l*/2 (Xiong et al. 2020, lemma 2): between {1 + depth / 2:.0f} and
{1 + 1.5 * depth:.0f} after {depth} blocks, measured {pre[deep].variances[-1]:.1f}. In peri-norm every sub-layer adds a
vector of variance 1, hence 1 + 2*l*: {1 + 2 * depth}, measured {peri[deep].variances[-1]:.1f}.

**Weights twice as large.** A sub-layer multiplies by two matrices, so in pre-norm what it adds should have about
2^4 = 16 times the variance: measured {pre[scaled].variances[-1] / pre[deep].variances[-1]:.1f} times. In peri-norm the
norm after the sub-layer takes the scale away again: measured
{peri[scaled].variances[-1] / peri[deep].variances[-1]:.2f} times. So weights that grow in training make the residual
stream of pre-norm grow, but not that of peri-norm (Kim et al. 2025). The growth exponential in depth of which Kim et
al. warn in pre-norm is one of trained models; at initialisation it is linear, and nothing more is shown here.

**Gradient of the last block.** The bound of Xiong et al. (2020, theorem 1) does not depend on the depth N for
post-norm, and falls like 1/sqrt(N) for pre-norm, where the final norm divides by the standard deviation of what
reaches it. From {shallow.layers} to {depth} blocks this gradient changes by a factor of {last_gradient(post):.2f} in
post-norm and {last_gradient(pre):.2f} in pre-norm, for which the measured variances predict
{predicted_last_gradient(pre):.2f}; in peri-norm by {last_gradient(peri):.2f} (predicted
{predicted_last_gradient(peri):.2f}). With {depth} blocks it is
{post[deep].gradient_norms[-1] / pre[deep].gradient_norms[-1]:.1f} times as large in post-norm as in pre-norm: the large
gradients near the output to which Xiong et al. trace the need for a warm-up of the learning rate.

**Gradients along the stack.** In pre- and peri-norm the norm before a sub-layer divides by the standard deviation of
the stream, so the product of gradient and standard deviation should be the same in every block. Over {depth} blocks its
largest value is {unevenness(pre):.2f} times its smallest (pre) and {unevenness(peri):.2f} times (peri), while the
gradients themselves fall by factors of {first_to_last(pre):.1f} and {first_to_last(peri):.1f} from the first block to
the last. That is a decline like 1/sqrt(*l*), from the input to the output: no block is left without a signal. At
initialisation pre- and peri-norm differ little in it.

**Vanishing gradients in post-norm,** which are said to starve the first blocks, are weak here: with {depth} blocks, the
median gradient of the first block is {first_to_last(post):.2f} times that of the last. What grows with depth is the
difference between seeds: the gradient of the first of {depth} blocks is up to {seed_to_seed("post"):.0f} times as large
with one seed as with another at this width (pre-norm {seed_to_seed("pre"):.1f} times, peri-norm
{seed_to_seed("peri"):.1f}).
""")


def report(figures: Figures, seconds: float) -> str:
    """The page of docs/."""
    command = shlex.join(["python", "benchmarks/gradient_flow.py", *sys.argv[1:]])
    versions = ", ".join(f"{name} {version(name)}" for name in ("paperformer", "torch", "transformers"))
    medians = {n: {setting: summarise(flows) for setting, flows in row.items()} for n, row in figures.items()}
    seeds = len(figures["post"][SETTINGS[0]])
    introduction = prose(f"""
Where the norms stand (`norm_position`) decides how large the residual stream grows and how large a gradient each block
receives. Shown here for a language model before its first update: LayerNorm, ReLU, {HIDDEN_SIZE} wide and as wide
inside, {HEADS} heads, RoPE, Xavier initialisation, embeddings of unit variance, {BATCH_SIZE} × {LENGTH} random tokens
out of {VOCAB_SIZE}. The gradient is that of the cross-entropy with respect to the feed-forward's second matrix; its
norm is shown. This is the model of Xiong et al. (2020, section 3), but for several heads whose queries and keys are not
zero.
""")
    return f"""# Gradients and variance at initialisation

{introduction}

![Gradient norm and variance by block, for post-, pre- and peri-norm](gradient_flow.svg)

Lines are medians over {seeds} seeds; bands reach from the lowest seed to the highest. In the last column every matrix
of the sub-layers is multiplied by {SETTINGS[-1].weight_scale:g}. The medians:

{table(medians)}

## What the papers predict, and what is measured

{explanation(figures, medians)}

`tests/modeling/test_signal_propagation.py` asserts this of the same measurement, but for the last paragraph.

## How it was measured

- Command: `{command}` ({seconds:.0f} s; it writes this page and the figure)
- Seeds: 0 to {seeds - 1}, of weights and tokens
- Date: {datetime.now(UTC):%Y-%m-%d}
- Hardware: {describe_hardware()}, 1 thread
- Software: Python {platform.python_version()}, {versions}

## Papers

- Vaswani et al. 2017, *Attention Is All You Need* (arXiv 1706.03762): post-norm
- Xiong et al. 2020, *On Layer Normalization in the Transformer Architecture* (arXiv 2002.04745): pre-norm
- Kim et al. 2025, *Peri-LN: Revisiting Normalization Layer in the Transformer Architecture* (arXiv 2502.02732)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=15, help="seeds 0, 1, ... (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    figures = {
        norm_position: {
            setting: [measure(norm_position, setting, seed) for seed in range(options.seeds)] for setting in SETTINGS
        }
        for norm_position in PLACEMENTS
    }
    DOCS.mkdir(exist_ok=True)
    draw(figures, DOCS / "gradient_flow.svg")
    (DOCS / "gradient_flow.md").write_text(report(figures, time.perf_counter() - start), encoding="utf-8")
    print(f"Written to {DOCS / 'gradient_flow.md'}")


if __name__ == "__main__":
    main()
