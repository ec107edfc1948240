"""The tokens of translations, their tree, and what the decoder looks at."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paperformer.decoding.alignment import cross_attention
from paperformer.decoding.search import Search, search_texts
from paperformer.decoding.translator import Translator
from paperformer.demo.attention import attend_words
from paperformer.demo.beams import Branch, SearchedText, Translation, cut_source, grow_tree, search_text
from paperformer.demo.tokens import Token, group_words, number_words, read_tokens
from paperformer.training.console.input_error import InputError

TEXT = "A dog runs on the beach."


@pytest.fixture(scope="module")
def translator(seq2seq: Any) -> Translator:
    return Translator(seq2seq.model, seq2seq.tokenizer)


@pytest.fixture(scope="module")
def searched(translator: Translator) -> SearchedText:
    return search_text(translator, TEXT, num_beams=4, n_best=4, length_penalty=0.8)


@given(text=st.text(max_size=40))
def test_the_texts_of_tokens_are_what_they_are_decoded_to(seq2seq: Any, text: str) -> None:
    ids = seq2seq.tokenizer(text).input_ids
    tokens = read_tokens(seq2seq.tokenizer, ids)
    assert len(tokens) == len(ids)
    assert "".join(token.text for token in tokens) == seq2seq.tokenizer.decode(ids, skip_special_tokens=True)


@given(text=st.text(st.characters(codec="utf-8", exclude_categories=["Zs", "Cc", "Zl", "Zp"]) | st.just(" ")))
def test_words_are_what_white_space_separates(text: str) -> None:
    pieces = [text[start : start + 2] for start in range(0, len(text), 2)]
    words = [word for word in number_words(pieces, [False] * len(pieces)) if word is not None]
    assert words == sorted(words)
    assert max(words, default=-1) < len(text.split())


def test_words_of_tokens() -> None:
    pieces = [("A", 0), (" do", 1), ("g", 1), (" ", None), ("runs", 2), (".", 2), ("", None)]
    tokens = [Token(text or "</s>", text, word) for text, word in pieces]
    assert [(word.text, word.places) for word in group_words(tokens)] == [
        ("A", (0,)),
        ("dog", (1, 2)),
        ("runs.", (4, 5)),
        ("</s>", (6,)),
    ]


def test_translations_are_those_of_the_search(translator: Translator, searched: SearchedText) -> None:
    search = Search(num_beams=4, n_best=4, length_penalty=0.8)
    (expected,) = search_texts(translator, [TEXT], lambda *_: None, search, show_progress=False)
    assert [each.text for each in searched.translations] == [each.text for each in expected]
    for own, other in zip(searched.translations, expected, strict=True):
        assert own.log_probability == pytest.approx(other.log_probability, rel=1e-5)
        assert own.score == pytest.approx(other.score, rel=1e-5)
        assert np.log(own.probabilities).sum() == pytest.approx(other.log_probability, rel=1e-4)
        of_words = np.log([probability for _, probability in own.words]).sum()
        blank = [
            p for p, token in zip(own.probabilities, own.tokens, strict=True) if token.text and not token.text.strip()
        ]
        assert of_words + np.log(blank).sum() == pytest.approx(other.log_probability, rel=1e-4)


def test_a_text_without_characters_is_refused(translator: Translator) -> None:
    with pytest.raises(InputError, match="there is no text to translate"):
        cut_source(translator, "  \n")


def test_a_text_that_is_too_long_is_cut(translator: Translator) -> None:
    pieces = cut_source(translator, " ".join([TEXT] * 20))
    assert len(pieces) > 1
    assert search_text(translator, pieces[0]).translations


def leaves(branch: Branch, before: tuple[str, ...] = ()) -> list[tuple[int, tuple[str, ...]]]:
    path = before + tuple(token.label for token in branch.tokens)
    return (
        [leaf for each in branch.branches for leaf in leaves(each, path)] if branch.branches else [(branch.best, path)]
    )


@given(st.lists(st.lists(st.integers(3, 5), max_size=5).map(tuple), min_size=1, max_size=6, unique=True))
def test_every_path_of_the_tree_is_a_translation(bodies: list[tuple[int, ...]]) -> None:
    translations = [
        Translation(
            text="",
            ids=(*body, 2),
            tokens=tuple(Token(str(id_), str(id_), 0) for id_ in (*body, 2)),
            probabilities=(0.5,) * (len(body) + 1),
            log_probability=-1.0,
            score=-1.0,
        )
        for body in bodies
    ]
    tree = grow_tree(translations)
    found = dict(leaves(tree))
    assert found == {place: tuple(map(str, own.ids)) for place, own in enumerate(translations)}

    def check(branch: Branch) -> None:
        assert len(branch.branches) != 1  # else it would not part here
        firsts = [each.tokens[0].label for each in branch.branches]
        assert len(set(firsts)) == len(firsts)
        assert [each.best for each in branch.branches] == sorted(each.best for each in branch.branches)
        for each in branch.branches:
            check(each)

    check(tree)


def test_attention_between_words_is_that_between_their_tokens(translator: Translator, searched: SearchedText) -> None:
    attention = attend_words(translator, searched, 1)
    translation = searched.translations[1]
    with torch.no_grad():
        between = cross_attention(translator.model, [searched.source_ids], [translation.ids], 0)[0].numpy()
    targets, sources = group_words(translation.tokens), group_words(searched.source)
    assert attention.sources == ["A", "dog", "runs", "on", "the", "beach.", "</s>"]
    expected = [[between[list(t.places)][:, list(s.places)].sum(1).mean() for s in sources] for t in targets]
    np.testing.assert_allclose(attention.weights.mean(1)[0], expected, rtol=1e-5)
    assert attention.weights.sum(-1).max() <= 1 + 1e-5


def test_linear_attention_has_nothing_to_show(translator: Translator, searched: SearchedText) -> None:
    translator.model.config.linear_attention = True
    try:
        with pytest.raises(InputError, match="never computes weights"):
            attend_words(translator, searched)
    finally:
        translator.model.config.linear_attention = False
