"""Every text comes back, with every algorithm that is called lossless; special tokens are never found in a text."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import train_tokenizer

LOSSLESS = ["byte_bpe", "bpe", "unigram", "characters"]
CORPUS = [
    "the cat sat on the mat, the cats sat",
    "die Katze saß auf der Matte. Die Katzen",
    "on the 12th of May 2017, at 12:30",
    "what <0x41> and </s> and <mask> mean",
    "▁ as text, and \x10, \x10\x11 and \x10\x12",
] * 5
SYMBOLS = ["<2de>", "[x]", "x]", "→", "ab", "bc", "\u0301"]
SPECIAL = ["<pad>", "<s>", "<unk>", "<mask>", "<extra_id_0>", "<extra_id_1>"]


def train(algorithm: str, *, symbols: bool = False, **options) -> PreTrainedTokenizerFast:
    if symbols:
        options |= {"user_symbols": SYMBOLS, "mask_token": True, "sentinels": 2}
    return train_tokenizer(CORPUS, 310, algorithm=algorithm, **options)


VARIANTS = [
    pytest.param(
        train(algorithm, append_eos=append_eos, split_digits=split_digits, symbols=symbols),
        id=f"{algorithm}-{'seq2seq' if append_eos else 'lm'}{'-digits' * split_digits}{'-symbols' * symbols}",
    )
    for algorithm, append_eos, (split_digits, symbols) in itertools.product(
        LOSSLESS, [True, False], [(False, False), (True, True), (False, True)]
    )
]
FRAGMENTS = [
    *SYMBOLS,
    *SPECIAL,
    "</s>",
    "<0x41>",
    "<0x20>",
    "<0xE2>",
    "▁",
    "\x10",
    "\x11",
    "\x12",
    "\x10\x12",
    " ",
    "  ",
    "\n",
    "\t",
    "\x00",
    "<",
    "##",
    "the",
    " cat",
    "2017",
    "é",
    "e\u0301",
    "中",
    "👩‍👧",
]
TEXT = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=6), max_size=9).map("".join)


@pytest.mark.parametrize("tokenizer", VARIANTS)
@given(text=TEXT)
@example("")
@example(" ")
@example("  two leading, two trailing  ")
@example("the cat")
@example(" the cat")
@example("a . b , c 's n't")  # what clean_up_tokenization_spaces would join
@example("\u0301")  # a combining mark with nothing to combine with
@example("e\u0301 \u00e9")  # equal after normalisation, and yet different
@example("\x00\x1f\x7f\u200b\ufeff\u2028\r\n\t")
@example("👩‍👩‍👧‍👦 𝔘𝔫𝔦")
@example("١٢ ½ 2017")
@example("<pad><s></s><unk> a </s> b")
@example("▁ the▁cat ▁")  # the sign that spaces are written with
@example("\x10 \x10\x11\x12 \x10▁")  # the sign that this is written with
@example("<0x41><0xE2><0x96><0x81>")  # bytes, spelled out
@example("<2de> the <2de>cat<2de>")
@example("abc bcab x[x] x]")  # symbols that overlap
def test_every_text_is_reproduced(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    eos = tokenizer.eos_token_id
    assert ids[-1:] == [eos] if tokenizer.padding_side == "right" else eos not in ids
    assert ids.count(eos) <= 1
    assert not set(ids) & set(tokenizer.convert_tokens_to_ids(SPECIAL[:3]))
    assert not set(ids) & set(tokenizer.all_special_ids) - {eos}


@pytest.mark.parametrize("algorithm", LOSSLESS)
@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@given(text=st.text() | st.text("e\u0301\u0308Å①ﬁ¨▁ \u1100\u1161"))
@example("¨a e\u0301")
def test_normalization_is_all_that_changes(algorithm: str, form: str, text: str) -> None:
    tokenizer = NORMALIZED[algorithm, form]
    decoded = tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True)
    assert decoded == getattr(normalizers, form)().normalize_str(text)


NORMALIZED = {
    (algorithm, form): train(algorithm, append_eos=True, normalization=form)
    for algorithm, form in itertools.product(LOSSLESS, ["NFC", "NFKC"])
}


@pytest.mark.parametrize("algorithm", ["byte_bpe", "bpe", "characters"])  # Unigram wants all characters to fit
def test_a_vocabulary_without_room_for_text_spells_it_in_bytes(algorithm: str) -> None:
    tokenizer = train_tokenizer(CORPUS, 260, append_eos=True, algorithm=algorithm)
    text = " the ▁ cat "
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert len(tokenizer) == 260
