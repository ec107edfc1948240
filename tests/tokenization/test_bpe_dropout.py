"""BPE-dropout: the distribution of the paper, seeded, and nothing left behind in the tokenizer."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import encode_with_bpe_dropout, train_tokenizer

TEXTS = ["the cat sat on the mat", "the dog saw the cat", "am 12. Mai 2017 um 12:30 Uhr"] * 5
SEQ2SEQ = train_tokenizer(TEXTS, 280, append_eos=True)
LM = train_tokenizer(TEXTS, 280, append_eos=False, split_digits=True)
WITH_SYMBOLS = {"user_symbols": ["<2", "<2de>", "cat", "at"], "mask_token": True}
SYMBOLS = train_tokenizer(TEXTS, 290, append_eos=True, **WITH_SYMBOLS)
FALLBACK = train_tokenizer(TEXTS, 316, append_eos=True, algorithm="bpe", **WITH_SYMBOLS)
FALLBACK_LM = train_tokenizer(TEXTS, 316, append_eos=False, algorithm="bpe", normalization="NFC")
CHARACTERS = train_tokenizer(TEXTS, 320, append_eos=True, algorithm="characters")
TOKENIZERS = [SEQ2SEQ, LM, SYMBOLS, FALLBACK, FALLBACK_LM, CHARACTERS]
TEXT = st.lists(st.sampled_from(["the", " cat", "<2de>", "</s>", "<mask>", "<0x41>", "2017", "▁"]) | st.text()).map(
    "".join
)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(text=TEXT)
@example("the cat sat on the mat in 2017")
@example("thethethethe aaaa  ")
@example("</s> a")
@example("<2de>the cat<2de><2de>sat in <mask> <2d")
def test_without_dropout_it_is_the_tokenizer(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert encode_with_bpe_dropout(tokenizer, [text], dropout=0, seed=0) == [tokenizer(text).input_ids]


@pytest.mark.parametrize("tokenizer", [SEQ2SEQ, LM, SYMBOLS, FALLBACK])
@given(text=TEXT, dropout=st.floats(0, 1), seed=st.integers())
def test_every_segmentation_reads_as_the_same_text(
    tokenizer: PreTrainedTokenizerFast, text: str, dropout: float, seed: int
) -> None:
    (ids,) = encode_with_bpe_dropout(tokenizer, [text], dropout=dropout, seed=seed)
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_full_dropout_gives_bytes() -> None:
    (ids,) = encode_with_bpe_dropout(LM, ["saß"], dropout=1, seed=0)
    assert len(ids) == len("saß".encode())
    (ids,) = encode_with_bpe_dropout(FALLBACK_LM, ["Mai™"], dropout=1, seed=0)
    assert FALLBACK_LM.convert_ids_to_tokens(ids) == ["M", "a", "i", "<0xE2>", "<0x84>", "<0xA2>"]


def test_user_symbols_are_never_split() -> None:
    for tokenizer in (SYMBOLS, FALLBACK):
        (ids,) = encode_with_bpe_dropout(tokenizer, ["<2de>a cat"], dropout=1, seed=0)
        tokens = tokenizer.convert_ids_to_tokens(ids)
        assert tokens[0] == "<2de>"
        assert "cat" in tokens


def test_special_tokens_are_found_where_the_tokenizer_is_told_to_find_them() -> None:
    tokenizer = train_tokenizer(TEXTS, 280, append_eos=True)
    tokenizer.split_special_tokens = False
    (ids,) = encode_with_bpe_dropout(tokenizer, ["the</s>cat"], dropout=0, seed=0)
    assert ids == tokenizer("the</s>cat").input_ids
    assert ids.count(2) == 2


def test_the_seed_decides() -> None:
    def encode(seed: int) -> list[list[int]]:
        return encode_with_bpe_dropout(SEQ2SEQ, TEXTS, dropout=0.3, seed=seed)

    assert encode(1) == encode(1)
    assert encode(1) != encode(2)
    assert len(set(map(tuple, encode(1)))) > len(set(TEXTS)), "equal texts must be split differently"


def test_segmentations_have_the_probabilities_of_the_paper() -> None:
    """Letters a, b, c; merges a+b, then b+c, then ab+c. The probabilities follow from algorithm 1 by hand."""
    tokenizer = train_tokenizer(["ab", "ab"], 261, append_eos=False, min_frequency=2)
    vocab = tokenizer.get_vocab() | {"bc": 261, "abc": 262}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[("a", "b"), ("b", "c"), ("ab", "c")]))
    backend.pre_tokenizer = tokenizer.backend_tokenizer.pre_tokenizer
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)

    p, n = 0.4, 20_000
    encoded = encode_with_bpe_dropout(tokenizer, ["abc"] * n, dropout=p, seed=0)
    counts = Counter("|".join(tokenizer.convert_ids_to_tokens(ids)) for ids in encoded)
    expected = {
        "abc": (1 - p) ** 2,  # ab kept, then abc kept
        "ab|c": (1 - p) * p,  # ab kept, then abc left out
        "a|bc": p * (1 - p),  # ab left out, bc kept; nothing merges a and bc
        "a|b|c": p**2,  # both left out at the first step
    }
    assert counts.keys() == expected.keys()
    for segmentation, probability in expected.items():
        standard_error = (probability * (1 - probability) / n) ** 0.5
        assert counts[segmentation] / n == pytest.approx(probability, abs=4 * standard_error)


def test_the_tokenizer_is_left_unchanged() -> None:
    before = SEQ2SEQ.backend_tokenizer.to_str()
    encode_with_bpe_dropout(SEQ2SEQ, TEXTS, dropout=0.5, seed=0)
    assert SEQ2SEQ.backend_tokenizer.to_str() == before


@pytest.mark.parametrize("dropout", [-0.1, 1.1, float("nan")])
def test_dropout_that_is_no_probability_is_refused(dropout: float) -> None:
    with pytest.raises(ValueError, match=r"dropout is .* from 0 to 1"):
        encode_with_bpe_dropout(SEQ2SEQ, TEXTS, dropout=dropout, seed=0)


def test_other_tokenizers_are_refused() -> None:
    backend = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    with pytest.raises(ValueError, match="model is WordLevel"):
        encode_with_bpe_dropout(PreTrainedTokenizerFast(tokenizer_object=backend), ["a"], dropout=0.1, seed=0)
