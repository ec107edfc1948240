"""Unigram sampling: the distribution of the paper over all segmentations, seeded, and nothing left behind."""

import itertools
import json
import math
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import encode_with_unigram_sampling, train_tokenizer

TEXTS = [
    "the cat sat on the mat; cats",
    "the dog, the dogs saw the cat",
    "am 12. Mai 2017 um 12:30 Uhr",
    "then at on",
] * 5
OPTIONS = {"algorithm": "unigram", "user_symbols": ["<2", "<2de>", "cat", "at"], "mask_token": True}
SEQ2SEQ = train_tokenizer(TEXTS, 297, append_eos=True, **OPTIONS)
LM = train_tokenizer(TEXTS, 292, append_eos=False, algorithm="unigram", split_digits=True, normalization="NFC")
TEXT = st.lists(
    st.sampled_from(["the", " cat", "<2de>", "</s>", "<mask>", "<0x41>", "2017", "▁"]) | st.text(max_size=6), max_size=9
).map("".join)

BYTES = [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
PIECES = {"a": -1.0, "b": -1.5, "c": -2.5, "ab": -1.2, "bc": -2.0, "abc": -2.2, "ca": -3.0, "éb": -2.5}


def tokenizer_of(pieces: dict[str, float]) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), *BYTES, *pieces.items()], unk_id=0, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def distribution(word: str, pieces: dict[str, float], alpha: float) -> dict[str, float]:
    """P(x) ** alpha, normalised over all segmentations x of the word, found by trying all."""
    pieces = pieces | {character: min(0.0, *pieces.values()) - 10 for character in word if character not in pieces}
    weights = {}
    for count in range(len(word)):
        for cut in itertools.combinations(range(1, len(word)), count):
            tokens = [word[a:b] for a, b in itertools.pairwise((0, *cut, len(word)))]
            if all(token in pieces for token in tokens):
                weights["|".join(tokens)] = math.exp(alpha * sum(pieces[token] for token in tokens))
    total = sum(weights.values())
    return {tokens: weight / total for tokens, weight in weights.items()}


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("word", ["abcab", "abcabc", "aéba"])
def test_segmentations_have_the_probabilities_of_the_paper(word: str, alpha: float) -> None:
    n = 10_000
    expected = distribution(word, PIECES, alpha)
    tokenizer = tokenizer_of(PIECES)
    counts = Counter(
        "|".join(tokenizer.convert_ids_to_tokens(ids)).replace("<0xC3>|<0xA9>", "é")
        for ids in encode_with_unigram_sampling(tokenizer, [word] * n, alpha=alpha, seed=0)
    )
    assert len(expected) > 1
    assert counts.keys() <= expected.keys()
    chi_squared = 0.0
    for segmentation, probability in expected.items():
        chi_squared += (counts[segmentation] - n * probability) ** 2 / (n * probability)
        standard_error = (probability * (1 - probability) / n) ** 0.5
        assert counts[segmentation] / n == pytest.approx(probability, abs=5 * standard_error + 1 / n)
    freedom = len(expected) - 1
    assert chi_squared < freedom + 5 * (2 * freedom) ** 0.5 + 10  # mean and standard deviations of the distribution


def test_words_are_drawn_independently() -> None:
    n = 10_000
    single = distribution("ab", PIECES, 0.5)
    tokenizer = tokenizer_of(PIECES)
    counts = Counter(map(len, encode_with_unigram_sampling(tokenizer, ["ab ab"] * n, alpha=0.5, seed=1)))
    both_split = single["a|b"] ** 2
    assert counts[4] / n == pytest.approx(both_split, abs=5 * (both_split * (1 - both_split) / n) ** 0.5)


@pytest.mark.parametrize("tokenizer", [SEQ2SEQ, LM])
@given(text=TEXT, alpha=st.floats(0, 10), seed=st.integers())
@example("<2de>the cat<2de><2de>sat in <mask> <2d ▁\x10", 0.1, 0)
def test_every_segmentation_reads_as_the_same_text(
    tokenizer: PreTrainedTokenizerFast, text: str, alpha: float, seed: int
) -> None:
    (ids,) = encode_with_unigram_sampling(tokenizer, [text], alpha=alpha, seed=seed)
    plain = tokenizer(text).input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == tokenizer.decode(plain, skip_special_tokens=True)
    for index in range(9):  # special tokens and user symbols
        assert ids.count(index) == plain.count(index)


@pytest.mark.parametrize("tokenizer", [SEQ2SEQ, LM])
@given(text=TEXT)
@example("the cat sat on the mat in 2017")
@example("日本 é<2de>é")
def test_a_large_alpha_gives_the_best_path(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert encode_with_unigram_sampling(tokenizer, [text], alpha=math.inf, seed=0) == [tokenizer(text).input_ids]
    scores = [score for _, score in json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"]]
    (ids,) = encode_with_unigram_sampling(tokenizer, [text], alpha=1e8, seed=0)
    plain = tokenizer(text).input_ids
    # Two paths of one score are equally good: "aaa" may be "a" and "aa", or "aa" and "a".
    assert sum(scores[i] for i in ids) == pytest.approx(sum(scores[i] for i in plain), abs=1e-6)
    assert len(ids) == len(plain) or sorted(ids) != sorted(plain)


def test_an_alpha_of_one_thousand_is_the_tokenizer_on_a_text() -> None:
    text = "the dog saw the mat on 12. Mai"
    assert encode_with_unigram_sampling(SEQ2SEQ, [text], alpha=1000.0, seed=0) == [SEQ2SEQ(text).input_ids]


def test_the_seed_decides() -> None:
    def encode(seed: int) -> list[list[int]]:
        return encode_with_unigram_sampling(SEQ2SEQ, TEXTS, alpha=0.2, seed=seed)

    assert encode(1) == encode(1)
    assert encode(1) != encode(2)
    assert len(set(map(tuple, encode(1)))) > len(set(TEXTS)), "equal texts must be split differently"


def test_the_tokenizer_is_left_unchanged() -> None:
    before = SEQ2SEQ.backend_tokenizer.to_str()
    encode_with_unigram_sampling(SEQ2SEQ, TEXTS, alpha=0.5, seed=0)
    assert SEQ2SEQ.backend_tokenizer.to_str() == before


def test_long_words_do_not_overflow() -> None:
    word = "abc" * 3000
    (ids,) = encode_with_unigram_sampling(tokenizer_of(PIECES), [word], alpha=0.3, seed=0)
    assert "".join(tokenizer_of(PIECES).convert_ids_to_tokens(ids)) == word


@pytest.mark.parametrize("alpha", [-0.1, float("nan")])
def test_alpha_below_zero_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha is .*, and must be at least 0"):
        encode_with_unigram_sampling(SEQ2SEQ, TEXTS, alpha=alpha, seed=0)


def test_other_tokenizers_are_refused() -> None:
    bpe = train_tokenizer(TEXTS, 280, append_eos=True)
    with pytest.raises(ValueError, match="model is BPE"):
        encode_with_unigram_sampling(bpe, ["a"], alpha=0.1, seed=0)
    without_bytes = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.Unigram([("<unk>", 0.0)], unk_id=0)))
    with pytest.raises(ValueError, match="needs a tokenizer with byte fallback"):
        encode_with_unigram_sampling(without_bytes, ["a"], alpha=0.1, seed=0)
