"""Unigram: the likeliest segmentation, rare characters in bytes, errors of its own."""

import itertools
import json
import math

import pytest
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import train_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:the vocabulary has")  # tiny texts have few pairs

STEMS = ["walk", "talk", "jump", "sing", "play", "look"]
TEXTS = [
    f"{stem}{end} the {stem}{other}, {stem}!" for stem in STEMS for end in ("ing", "ed", "er") for other in ("s", "")
]
RARE = "日本語"


def train(*, append_eos: bool = True, vocab_size: int = 310, **options) -> PreTrainedTokenizerFast:
    return train_tokenizer([*TEXTS, RARE], vocab_size, append_eos=append_eos, algorithm="unigram", **options)


def scores_of(tokenizer: PreTrainedTokenizerFast) -> dict[str, float]:
    return dict(json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"])


@pytest.mark.parametrize("word", ["walking", "player", "jumps,", "singalong"])
def test_the_likeliest_segmentation_is_chosen(word: str) -> None:
    tokenizer = train(append_eos=False)
    scores = scores_of(tokenizer)
    cuts = itertools.chain.from_iterable(itertools.combinations(range(1, len(word)), n) for n in range(len(word)))
    segmentations = ([word[a:b] for a, b in itertools.pairwise((0, *cut, len(word)))] for cut in cuts)
    best = max(sum(scores.get(token, -math.inf) for token in tokens) for tokens in segmentations)
    assert sum(scores[token] for token in tokenizer.tokenize(word)) == pytest.approx(best, abs=1e-9)


def test_frequent_words_and_endings_are_tokens() -> None:
    tokenizer = train()
    assert {"▁walk", "▁jump", "ing"} <= tokenizer.get_vocab().keys()
    assert tokenizer.tokenize("walking", add_special_tokens=False) == ["▁walk", "ing"]


def test_characters_below_min_frequency_are_spelled_in_bytes() -> None:
    tokenizer = train()
    assert not set(RARE) & set("".join(tokenizer.get_vocab()))
    assert tokenizer.tokenize("日")[-3:] == ["<0xE6>", "<0x97>", "<0xA5>"]
    assert set(RARE) <= train(min_frequency=1).get_vocab().keys()


def test_split_digits() -> None:
    texts = ["in 2017.", "2017, then", "of 2017s", "2017"] * 3
    merged = train_tokenizer(texts, 300, append_eos=False, algorithm="unigram")
    assert any(token.strip("▁").isdigit() and len(token) > 2 for token in merged.get_vocab())
    split = train_tokenizer(texts, 300, append_eos=False, algorithm="unigram", split_digits=True)
    assert split.tokenize("2017") == list("2017")


def test_scores_are_probabilities() -> None:
    """But for the reserved tokens and the bytes, which the model never gets to see in a word."""
    scores = list(scores_of(train()).values())
    assert scores[:260] == [0.0] * 260
    assert max(scores[260:]) < 0
    assert scores[260:] == sorted(scores[260:], reverse=True)
    assert sum(map(math.exp, scores[260:])) == pytest.approx(1, abs=0.2)


def test_more_characters_than_room_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"vocab_size is 290, which leaves 30 tokens .* have 101 different characters"):
        train_tokenizer(["".join(map(chr, range(0x4E00, 0x4E65)))] * 2, 290, append_eos=True, algorithm="unigram")


def test_errors_of_the_texts_come_through() -> None:
    with pytest.raises(UnicodeEncodeError):
        train_tokenizer(["a\ud800"], 290, append_eos=True, algorithm="unigram")


@pytest.mark.parametrize("text", ["a", " ", "\x00", "aaaa" * 50, "\n\n"])
@pytest.mark.parametrize("vocab_size", [260, 261, 300])
def test_tiny_corpora_come_to_an_end(text: str, vocab_size: int) -> None:
    tokenizer = train_tokenizer([text] * 2, vocab_size, append_eos=False, algorithm="unigram")
    assert 260 <= len(tokenizer) <= vocab_size
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_a_smaller_vocabulary_than_asked_for_warns() -> None:
    with pytest.warns(UserWarning, match=r"vocab_size=300: the words of the texts have too few substrings in common"):
        train_tokenizer(["ab", "abc", "abd"], 300, append_eos=False, algorithm="unigram")
