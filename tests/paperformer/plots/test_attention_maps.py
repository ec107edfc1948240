from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image, ImageOps
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from paperformer.plots.attention_maps import LARGEST_SIDE, AttentionMaps, Tokens, collect_attention, draw_attention
from paperformer.plots.figure_file import DPI, save_figure
from paperformer.plots.token_labels import read_tokens
from paperformer.tokenization import train_tokenizer
from paperformer.training.console.input_error import InputError

TEXT, TARGET = "A dog runs.", "Ein Hund."
MakeModel = Callable[..., PreTrainedModel]
Tokenizers = dict[str, PreTrainedTokenizerBase]


def random_maps(layers: int, heads: int, queries: int, keys: int) -> AttentionMaps:
    torch.manual_seed(0)
    weights = (4 * torch.randn(layers, heads, queries, keys)).softmax(-1)

    def side(name: str, count: int) -> Tokens:
        return Tokens(f"token of some kind of {name}", [f"{name}{i}" for i in range(count)])

    return AttentionMaps("Attention", side("query", queries), side("key", keys), weights)


def maps_of(figure: Figure) -> list[Axes]:
    """All axes but the last, which are the colour bar's."""
    return figure.axes[:-1]


def labels(axes: Axes, side: str) -> list[str]:
    return [label.get_text() for label in getattr(axes, f"get_{side}ticklabels")()]


@pytest.mark.parametrize("family", ["lm", "encoder"])
def test_self_attention_is_the_models_own(family: str, make_model: MakeModel, tokenizers: Tokenizers) -> None:
    model, tokenizer = make_model(family), tokenizers[family]
    maps = collect_attention(model, tokenizer, TEXT)
    assert maps.keys() == {"self"}
    ids = tokenizer(TEXT).input_ids
    if family == "lm":
        ids = [tokenizer.bos_token_id, *ids]
    with torch.no_grad():
        expected = model(torch.tensor([ids]), output_attentions=True).attentions
    weights = maps["self"].weights
    assert weights.shape == (2, 4, len(ids), len(ids))
    for layer, attention in enumerate(expected):
        assert torch.equal(weights[layer], attention[0])
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, len(ids)))
    assert bool((weights.triu(1) == 0).all()) == (family == "lm")
    assert maps["self"].queries == maps["self"].keys
    assert maps["self"].keys.labels[0] == ("<s>" if family == "lm" else "␣A")


def test_the_three_attentions_of_an_encoder_decoder(make_model: MakeModel, tokenizers: Tokenizers) -> None:
    model, tokenizer = make_model("seq2seq"), tokenizers["seq2seq"]
    maps = collect_attention(model, tokenizer, TEXT, TARGET)
    source, target = (tokenizer(text).input_ids for text in (TEXT, TARGET))
    read = [model.config.decoder_start_token_id, *target[:-1]]
    with torch.no_grad():
        outputs = model(torch.tensor([source]), decoder_input_ids=torch.tensor([read]), output_attentions=True)
    for part, expected in (
        ("encoder", outputs.encoder_attentions),
        ("decoder", outputs.decoder_attentions),
        ("cross", outputs.cross_attentions),
    ):
        assert torch.equal(maps[part].weights, torch.cat(expected)), part
        torch.testing.assert_close(maps[part].weights.sum(-1), torch.ones(maps[part].weights.shape[:3]))
    assert maps["encoder"].queries.labels == maps["encoder"].keys.labels == maps["cross"].keys.labels
    assert [len(maps["cross"].queries.labels), len(maps["cross"].keys.labels)] == [len(target), len(source)]
    assert maps["cross"].keys.labels[-1] == maps["cross"].queries.labels[-1] == "</s>"
    # What is read is what was written, one step later.
    assert maps["decoder"].keys.labels == ["<s>", *maps["cross"].queries.labels[:-1]]


def test_of_two_vocabularies_each_side_has_its_own(make_model: MakeModel, tokenizers: Tokenizers) -> None:
    german = train_tokenizer(["Ein Hund rennt.", "Ein Hund schläft."] * 3, 280, append_eos=True)
    model = make_model("seq2seq", source_vocab_size=300, vocab_size=280, share_embeddings=False)
    maps = collect_attention(model, tokenizers["seq2seq"], TEXT, TARGET, german)["cross"]
    assert maps.keys.labels == read_tokens(tokenizers["seq2seq"], tokenizers["seq2seq"](TEXT).input_ids)
    assert maps.queries.labels == read_tokens(german, german(TARGET).input_ids)
    assert maps.queries.labels != read_tokens(tokenizers["seq2seq"], tokenizers["seq2seq"](TARGET).input_ids)


def test_without_a_target_it_is_the_models_own_translation(make_model: MakeModel, tokenizers: Tokenizers) -> None:
    model, tokenizer = make_model("seq2seq"), tokenizers["seq2seq"]
    own = collect_attention(model, tokenizer, TEXT)
    model.generation_config.num_beams = 1
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    with torch.no_grad():
        written = model.generate(ids, max_new_tokens=2 * ids.shape[1] + 20)[0, 1:]  # type: ignore[operator]
    tokens = tokenizer.convert_ids_to_tokens(written.tolist())
    assert len(own["cross"].queries.labels) == len(tokens) > 3
    assert own["cross"].weights.shape[2:] == (len(tokens), ids.shape[1])


@pytest.mark.parametrize(
    ("family", "text", "target", "message"),
    [
        ("lm", "", None, "--text is empty; it must have text"),
        ("seq2seq", TEXT, "", "--target is empty; it must have text"),
        ("lm", TEXT, TARGET, "--target is for encoder-decoders; this model is a paperformer-lm"),
        ("lm", "q" * 64, None, "--text has 65 tokens; the model takes at most 64"),
        ("seq2seq", TEXT, "q" * 70, "--target has 72 tokens; the model takes at most 64"),
    ],
)
def test_texts_that_cannot_be_drawn(
    family: str, text: str, target: str | None, message: str, make_model: MakeModel, tokenizers: Tokenizers
) -> None:
    with pytest.raises(InputError, match=message):
        collect_attention(make_model(family), tokenizers[family], text, target)


def test_linear_attention_has_no_weights(make_model: MakeModel, tokenizers: Tokenizers) -> None:
    model = make_model("lm", linear_attention=True, position_embedding_type="sinusoidal")
    with pytest.raises(InputError, match="linear attention, which never computes weights"):
        collect_attention(model, tokenizers["lm"], TEXT)


def test_a_figure_shows_every_layer_and_head_exactly() -> None:
    attention = random_maps(2, 3, 4, 5)
    figure = draw_attention(attention, "tiny $x$", range(2), range(3))
    axes = maps_of(figure)
    assert [a.get_title() for a in axes] == [f"layer {layer}, head {head}" for layer in range(2) for head in range(3)]
    for index, a in enumerate(axes):
        (image,) = a.images
        assert np.array_equal(image.get_array(), attention.weights[index // 3, index % 3].numpy())
        assert image.get_clim() == (0, 1)
        assert labels(a, "y") == (attention.queries.labels if index % 3 == 0 else [])
        assert labels(a, "x") == (attention.keys.labels if index >= 3 else [])
    tops, lefts = ([round(getattr(a.get_position(), side), 6) for a in axes] for side in ("y1", "x0"))
    assert tops[0] == tops[2] > tops[3] == tops[5]  # layers are rows
    assert lefts[0] == lefts[3] < lefts[1] < lefts[2]  # heads are columns
    assert {text.get_text() for text in figure.texts} == {
        "Attention of tiny $x$",
        "token of some kind of key (key)",
        "token of some kind of query (query)",
    }
    assert figure.axes[-1].get_ylabel() == "attention weight"


def test_one_layer_one_head_and_a_scale_of_its_own() -> None:
    attention = random_maps(3, 8, 4, 4)
    figure = draw_attention(attention, "tiny", [2], [5], highest=0.5)
    (axes,) = maps_of(figure)
    assert axes.get_title() == "layer 2, head 5"
    assert np.array_equal(axes.images[0].get_array(), attention.weights[2, 5].numpy())
    assert axes.images[0].get_clim() == (0, 0.5)
    eight = maps_of(draw_attention(attention, "tiny", [1], range(8)))
    assert len({round(a.get_position().x0, 6) for a in eight}) == 4  # two rows of four


@pytest.mark.parametrize(
    ("layers", "heads", "queries", "keys"),
    [(1, 1, 1, 1), (1, 1, 3, 3), (1, 1, 2, 40), (1, 1, 40, 2),
     *(pytest.param(*sizes, marks=pytest.mark.proof)
       for sizes in [(1, 1, 80, 80), (1, 16, 3, 3), (1, 16, 80, 80), (4, 3, 80, 30), (1, 1, 400, 400)])],
)  # fmt: skip
def test_labels_are_readable_at_any_size(layers: int, heads: int, queries: int, keys: int) -> None:
    figure = draw_attention(random_maps(layers, heads, queries, keys), "a model", range(layers), range(heads))
    width, height = figure.get_size_inches()
    corner = maps_of(figure)[-heads if layers > 1 else -(4 if heads == 16 else 1)]
    box = corner.get_position()
    for side, extent, count in (("x", box.width * width, keys), ("y", box.height * height, queries)):
        ticks = getattr(corner, f"get_{side}ticks")()
        texts = getattr(corner, f"get_{side}ticklabels")()
        assert [text.get_text() for text in texts] == [f"{'key' if side == 'x' else 'query'}{int(i)}" for i in ticks]
        assert texts[0].get_fontsize() >= 5.5
        every = ticks[1] - ticks[0] if len(ticks) > 1 else 1
        assert every * extent / count * 72 >= 1.25 * texts[0].get_fontsize()  # apart by more than their height
        assert (f"1 in {every} labelled" in " ".join(t.get_text() for t in figure.texts)) == (every > 1)
        if queries <= 30:
            assert every == 1
    assert max(figure.get_tightbbox().size) < LARGEST_SIDE + 4
    assert_no_name_is_hidden(figure)


def test_long_tokens_and_names_stay_on_the_page(tmp_path: Path) -> None:
    few = random_maps(1, 1, 2, 2)
    for queries, keys in ((["w" * 20, "i"], ["a", "b"]), (["a", "b"], ["w" * 20, "i"])):
        attention = AttentionMaps("A", Tokens("q" * 40, queries), Tokens("k" * 40, keys), few.weights)
        figure = draw_attention(attention, "m", [0], [0])
        assert_no_name_is_hidden(figure)
        save_figure(figure, tmp_path / "figure.png")
        with Image.open(tmp_path / "figure.png") as image:
            left, top, right, bottom = ImageOps.invert(image.convert("L")).getbbox()
            assert min(left, top, image.width - right, image.height - bottom) > 5  # pixels of white on all sides


def assert_no_name_is_hidden(figure: Figure) -> None:
    """The title and the names of the axes overlap with no other text."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    boxes = {text: text.get_window_extent(canvas.get_renderer()) for text in texts}
    assert len(figure.texts) == 3
    for name in figure.texts:
        assert [text for text in texts if boxes[text].overlaps(boxes[name])] == [name]
