import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.font_manager import findfont
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from paperformer.plots import token_labels
from paperformer.plots.attention_maps import AttentionMaps, Tokens, draw_attention
from paperformer.plots.token_labels import find_drawable_labels, read_tokens


@pytest.fixture(scope="module")
def tokenizer(tokenizers: dict[str, PreTrainedTokenizerBase]) -> PreTrainedTokenizerBase:
    return tokenizers["lm"]


def read(tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    return read_tokens(tokenizer, tokenizer(text).input_ids)


def test_bytes_become_text_and_white_space_is_seen(tokenizer: PreTrainedTokenizerBase) -> None:
    assert "".join(read(tokenizer, "A dog läuft\n\tam")) == "A␣dog␣läuft↵⇥am"
    assert read(tokenizer, " dog") == ["␣do", "g"]
    assert read(tokenizer, "\x07\r") == ["\\x07", "␍"]
    assert read_tokens(tokenizer, [1, 2, 0]) == ["<s>", "</s>", "<pad>"]


def test_a_divided_character_is_shown_as_bytes(tokenizer: PreTrainedTokenizerBase) -> None:
    assert read(tokenizer, "🙂") == ["\\xf0", "\\x9f", "\\x99", "\\x82"]


def test_an_id_that_the_tokenizer_lacks(tokenizer: PreTrainedTokenizerBase) -> None:
    assert read_tokens(tokenizer, [1, 9999]) == ["<s>", "id=9999"]


def test_other_tokenizers_keep_their_symbols() -> None:
    words = Tokenizer(models.WordLevel({"▁dog": 0, "##s": 1, "\u0301": 2, "ä": 3, "x" * 30: 4}, unk_token="##s"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    labels = read_tokens(PreTrainedTokenizerFast(tokenizer_object=words), [0, 1, 2, 3, 4])
    assert labels == ["␣dog", "##s", "◌\u0301", "ä", "x" * 19 + "…"]


@given(text=st.text(min_size=1, max_size=30))
def test_any_text_has_visible_labels(text: str, tokenizers: dict[str, PreTrainedTokenizerBase]) -> None:
    ids = tokenizers["lm"](text).input_ids
    labels = read_tokens(tokenizers["lm"], ids)
    assert len(labels) == len(ids)
    for label in labels:
        assert label.isprintable()
        assert label == "".join(label.split())
        assert 0 < len(label) <= 21


def test_characters_that_no_font_has_are_code_points(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(token_labels, "_list_fonts", list)
    sides, families = find_drawable_labels(["中a", "b"], ["é", "中"])
    assert sides == [["U+4E2Da", "b"], ["é", "U+4E2D"]]
    assert families == ["DejaVu Sans"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no installed font can draw 中: shown as code points" in said
    assert find_drawable_labels(["a"])[1] == ["DejaVu Sans"]
    assert capsys.readouterr().err == ""


def test_another_font_draws_what_the_first_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(findfont("STIXGeneral"))  # ships with matplotlib
    monkeypatch.setattr(token_labels, "_list_fonts", lambda: [("cmr10", findfont("cmr10")), ("STIXGeneral", path)])
    rare = min(token_labels._read_charset(path) - token_labels._read_charset(token_labels._find_plain_font()))
    sides, families = find_drawable_labels([rare])
    assert (sides, families) == ([[rare]], ["DejaVu Sans", "STIXGeneral"])
    assert capsys.readouterr().err == ""
    tokens = Tokens("token", [rare, "$a$"])
    figure = draw_attention(AttentionMaps("x", tokens, tokens, torch.eye(2)[None, None]), "m", [0], [0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of a missing glyph
        figure.canvas.draw()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == [rare, "$a$"]


def test_the_last_resort_is_no_font() -> None:
    names = {name for name, _ in token_labels._list_fonts()}
    assert "DejaVu Sans Mono" in names
    assert not any("Last Resort" in name or name.startswith("cm") for name in names)
