"""What is shown as HTML: texts of models and of visitors are texts in it, whatever they are."""

import base64
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from paperformer.demo import markup
from paperformer.demo.attention import WordAttention
from paperformer.demo.beams import SearchedText, Translation
from paperformer.demo.continuing import Candidate, Step
from paperformer.demo.surprisal import Surprisals
from paperformer.demo.tokens import Token
from paperformer.serving.engines.masks import Filling

HOSTILE = "</span><script>alert('1')</script><img src=x onerror=\"alert(2)\">${alert(3)}&amp;"
TAGS = set(
    "section h3 h4 p span div ul li b mark label select option button table caption thead tbody tr th td i code".split()  # noqa: SIM905
)


def token(text: str, word: int | None = 0) -> Token:
    return Token(text, text, word)


def translation(*texts: str) -> Translation:
    return Translation(
        text=" ".join(texts),
        ids=tuple(hash(text) for text in texts),
        tokens=tuple(token(text, place) for place, text in enumerate(texts)),
        probabilities=(0.25,) * len(texts),
        log_probability=-1.5,
        score=-0.5,
    )


STEP = Step(HOSTILE, Candidate(HOSTILE, 0.5, 0.25), (Candidate("a", 0.5, 0.75),))
SEARCHED = SearchedText((1,), (token(HOSTILE),), (translation(HOSTILE), translation("other")))
ATTENTION = WordAttention([HOSTILE], [HOSTILE], np.full((1, 1, 1, 1), 0.5, np.float32))
SHOWN = {
    "state": lambda: markup.show_state("failed", HOSTILE),
    "model": lambda: markup.show_model(HOSTILE, SEARCHED, markup.show_attention(ATTENTION), other="a", notes=[HOSTILE]),
    "attention": lambda: markup.show_attention(ATTENTION),
    "written": lambda: markup.show_written(HOSTILE, [STEP]),
    "candidates": lambda: markup.show_candidates(STEP),
    "heat": lambda: markup.show_heat(Surprisals([token(HOSTILE)], [2.0], 1)),
    "fillings": lambda: markup.show_fillings([[Filling(HOSTILE, 0.5)]]),
    "file": lambda: markup.show_file(HOSTILE, [HOSTILE]),
}


class Reader(HTMLParser):
    """Tags, attributes and texts of HTML that has to be well nested."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: dict[str, list[str]] = {}
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("name", SHOWN)
def test_texts_are_escaped(name: str) -> None:
    read = Reader(SHOWN[name]())
    assert read.tags <= TAGS
    assert not [attribute for attribute in read.attributes if attribute.startswith("on") or attribute == "src"]
    assert any(HOSTILE in text for text in read.texts)


def test_a_model_shows_its_translations_and_in_what_they_differ() -> None:
    read = Reader(markup.show_model("tiny", SEARCHED, "", other="other words"))
    assert "2 best translations, and where they part" in read.texts
    assert read.texts.count("-0.500") + read.texts.count(" -0.500") == 2
    assert "mark" in read.tags
    alike = markup.show_model("tiny", SEARCHED, "", other=HOSTILE)
    assert "Both models write the same." in alike


def test_attention_is_packed_a_byte_a_weight() -> None:
    weights = np.linspace(0, 1, 2 * 3 * 2 * 2).reshape(2, 3, 2, 2).astype(np.float32)
    read = Reader(markup.show_attention(WordAttention(["a", "b"], ["c", "d"], weights)))
    (packed,) = read.attributes["data-weights"]
    unpacked = np.frombuffer(base64.b64decode(packed), np.uint8).reshape(weights.shape) / 255
    assert np.abs(unpacked - weights).max() <= 0.5 / 255 + 1e-6
    assert (read.attributes["data-layers"], read.attributes["data-heads"]) == (["2"], ["3"])
    assert [text for text in read.texts if text in "abcd"] == ["c", "d", "a", "b"]


def test_the_darkest_token_is_the_most_surprising() -> None:
    found = Surprisals([token("a"), token("b"), token("c")], [None, 1.0, 99.0], 3)
    styles = Reader(markup.show_heat(found)).attributes["style"]
    assert styles[:3] == ["--doubt:0.000", "--doubt:0.125", "--doubt:1.000"]
    assert "the first 3 were read" in markup.show_heat(Surprisals(found.tokens, found.nats, 9))
