from collections.abc import Callable

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from paperformer.modeling.positions import rotate
from paperformer.plots.position_schemes import (
    compute_biases,
    compute_rotary_scores,
    draw_positions,
    find_position_schemes,
)
from paperformer.training.console.input_error import InputError

MakeModel = Callable[..., PreTrainedModel]


def titles(figure: Figure) -> list[str]:
    return [
        axes.get_title() for axes in figure.findobj(lambda artist: hasattr(artist, "get_title")) if axes.get_title()
    ]


def named(figure: Figure, title: str) -> list:
    """The axes of that title, from top to bottom."""
    return [axes for axes in figure.axes if axes.get_title() == title]


def test_sinusoids(make_model: MakeModel) -> None:
    figure = draw_positions(make_model("seq2seq", position_embedding_type="sinusoidal"), "tiny", 50)
    position, pair = np.arange(50)[:, None], np.arange(12)[None]
    angles = position / 10_000 ** (2 * pair / 24)  # Vaswani et al. 2017, section 3.5
    table = np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(50, 24)
    (heatmap,) = named(figure, "vectors added to the embeddings")  # the same in both stacks: drawn once
    np.testing.assert_allclose(heatmap.images[0].get_array(), table, atol=1e-5)
    assert heatmap.images[0].get_extent() == [-0.5, 23.5, 49.5, -0.5]
    (curves,) = named(figure, "similarity of a position (colour) with all")
    assert [line.get_label() for line in curves.lines] == ["0", "12", "24", "37", "49"]
    for line in curves.lines:
        one = table[int(line.get_label())]
        expected = table @ one / np.linalg.norm(table, axis=1) / np.linalg.norm(one)
        np.testing.assert_allclose(line.get_ydata(), expected, atol=1e-5)
    assert (curves.get_xlabel(), curves.get_ylabel()) == ("position (tokens)", "cosine similarity")


def test_learned_positions_of_both_stacks(make_model: MakeModel) -> None:
    model = make_model("seq2seq", position_embedding_type="learned")
    figure = draw_positions(model, "tiny", 40)
    heatmaps = named(figure, "vectors added to the embeddings")
    for heatmap, stack in zip(heatmaps, ("encoder", "decoder"), strict=True):
        weight = getattr(model.model, stack).positions.table.weight[:40].detach().numpy()
        np.testing.assert_array_equal(heatmap.images[0].get_array(), weight)
    assert [part.get_suptitle() for part in figure.subfigs] == ["encoder", "decoder"]
    with pytest.raises(InputError, match="--length is 65; the model has 64 learned positions"):
        draw_positions(model, "tiny", 65)


@pytest.mark.parametrize("rope", [{}, {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0}], ids=["plain", "yarn"])
def test_rotary_positions(rope: dict[str, float], make_model: MakeModel) -> None:
    options = {"rope_parameters": rope} if rope else {}
    model = make_model("lm", position_embedding_type="rope", head_dim=8, **options)
    (scheme,) = find_position_schemes(model)
    torch.manual_seed(1)
    vectors, places = torch.randn(5, 8), torch.arange(30)[None]
    turned = rotate(vectors[None, :, None].expand(1, 5, 30, 8), scheme.module.rotation(vectors, places))[0]
    expected = (turned[:, :1] * turned).sum(-1) / vectors.square().sum(-1, keepdim=True)
    torch.testing.assert_close(compute_rotary_scores(scheme, 30, vectors), expected, atol=1e-5, rtol=1e-5)

    figure = draw_positions(model, "tiny", 30)
    (scores,) = named(figure, "score of a query and an equal key")
    (mean,) = [line for line in scores.lines if line.get_label() == "mean over random vectors"]
    (frequencies,) = named(figure, "rotation of the pairs of a head")
    assert frequencies.get_yscale() == "log"
    dots, one_turn = frequencies.lines
    assert one_turn.get_ydata()[0] == pytest.approx(2 * np.pi / 64)
    if not rope:
        theta = 10_000.0 ** (-np.arange(4) / 4)
        np.testing.assert_allclose(dots.get_ydata(), theta, rtol=1e-5)
        np.testing.assert_allclose(mean.get_ydata(), np.cos(np.arange(30)[:, None] * theta).mean(1), atol=1e-5)
    band = scores.collections[0].get_paths()[0].vertices
    middle = mean.get_ydata()[1:]
    assert (band[:, 1].max() > middle).all()
    assert (band[:, 1].min() < middle).all()


@pytest.mark.parametrize("family", ["lm", "encoder"])
@pytest.mark.parametrize("kind", ["alibi", "relative"])
def test_biases(kind: str, family: str, make_model: MakeModel) -> None:
    model = make_model(family, position_embedding_type=kind)
    (scheme,) = find_position_schemes(model)
    assert scheme.is_causal == (family == "lm")
    if kind == "relative":
        torch.nn.init.normal_(scheme.module.table.weight)
    whole = scheme.module.attention_bias(torch.zeros(1), torch.arange(99)[None], None, None)[0].detach()  # (H, 99, 99)
    expected = whole[:, -1, -50:] if family == "lm" else whole[:, 49]  # all behind, or the middle one's both sides
    distances, bias = compute_biases(scheme, 50)
    assert distances.tolist() == list(range(-49, 1 if family == "lm" else 50))
    assert torch.equal(bias, expected)

    figure = draw_positions(model, "tiny", 50)
    (curves,), (heatmap,) = named(figure, "bias of each head"), named(figure, "all heads")
    assert [line.get_label() for line in curves.lines] == [f"head {head}" for head in range(4)]
    for line, values in zip(curves.lines, expected, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), distances)
        np.testing.assert_allclose(line.get_ydata(), values)
    np.testing.assert_array_equal(heatmap.images[0].get_array(), expected)
    assert curves.get_xlabel() == "key position − query position (tokens)"
    if kind == "alibi":
        slopes = 2.0 ** -(2 * np.arange(1, 5))  # Press et al. 2022, section 3, for 4 heads
        np.testing.assert_allclose(bias, -slopes[:, None] * np.abs(distances.numpy()))


def test_relative_biases_of_both_stacks(make_model: MakeModel) -> None:
    figure = draw_positions(make_model("seq2seq", position_embedding_type="relative"), "tiny", 20)
    spans = [axes.lines[0].get_xdata()[[0, -1]].tolist() for axes in named(figure, "bias of each head")]
    assert spans == [[-19, 19], [-19, 0]]


def test_models_without_positions(make_model: MakeModel) -> None:
    with pytest.raises(InputError, match="position_embedding_type is none; there is nothing to draw"):
        draw_positions(make_model("lm", position_embedding_type="none"), "tiny", 9)
    gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=9))
    with pytest.raises(InputError, match="a gpt2 is no paperformer model"):
        draw_positions(gpt2, "tiny", 9)
