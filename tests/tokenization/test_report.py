"""What is said of a tokenizer, for paperformer's own and for those of others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import train_tokenizer
from paperformer.tokenization.report import PROBES, TokenText, describe, visible

TEXTS = ["the cat sat on the mat", "the dog saw 12 cats", "ein Hund läuft"] * 5
OWN = train_tokenizer(TEXTS, 290, append_eos=True)


def make_wordpiece() -> PreTrainedTokenizerFast:
    """As BERT's: lower case, pieces inside words begin with ##."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "##s", "un", "##seen", ".", "1", "##2", "2017"]
    tokenizer = Tokenizer(models.WordPiece({token: id_ for id_, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def make_unigram() -> PreTrainedTokenizerFast:
    """As T5's: ▁ for a space."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁the", -2.5), ("▁c", -3.0), ("at", -3.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def make_byte_fallback() -> PreTrainedTokenizerFast:
    """As Llama 2's: characters, and bytes for those that the vocabulary lacks."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "1", "2", "▁a", "12"]
    model = models.BPE(
        {token: id_ for id_, token in enumerate(tokens)},
        [("▁", "a"), ("1", "2")],
        unk_token="<unk>",
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


WORDPIECE, UNIGRAM, BYTE_FALLBACK = make_wordpiece(), make_unigram(), make_byte_fallback()
ALL = [OWN, WORDPIECE, UNIGRAM, BYTE_FALLBACK]


def split(tokenizer: PreTrainedTokenizerFast, text: str) -> list[str]:
    return TokenText(tokenizer).all_shown(tokenizer(text).input_ids)


def test_a_byte_level_tokenizer() -> None:
    report = describe(OWN)
    assert report.model == "byte-level BPE"
    assert report.size == len(OWN) == 290
    assert report.special_tokens == {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    assert report.normalizer == 'Prepend(prepend=" ")'
    assert report.altered == {}
    assert report.single_bytes == 256
    assert report.single_characters == 128
    assert (report.numbers, report.longest_number) == (12, 2)  # 0 to 9, 12 and ␣12


def test_digits_that_are_split() -> None:
    report = describe(train_tokenizer(TEXTS, 290, append_eos=False, split_digits=True))
    assert (report.numbers, report.longest_number) == (10, 1)
    assert report.normalizer == "none"


def test_a_wordpiece_tokenizer() -> None:
    report = describe(WORDPIECE)
    assert report.model == "WordPiece"
    assert report.special_tokens == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    assert report.normalizer.startswith("BertNormalizer(")
    assert report.single_bytes == 0
    assert report.single_characters == 4  # ##s . 1 ##2
    assert (report.numbers, report.longest_number) == (3, 4)
    assert report.longest_tokens[:3] == ("##seen", "2017", "the")
    assert set(report.altered) == {*PROBES, "special tokens spelled out"}


def test_a_unigram_tokenizer() -> None:
    report = describe(UNIGRAM)
    assert report.model == "Unigram"
    assert report.normalizer == "NFKC()"
    assert report.single_characters == 1  # the space
    assert report.longest_tokens == ("␣the", "␣c", "at", "␣")


def test_a_tokenizer_that_falls_back_to_bytes() -> None:
    report = describe(BYTE_FALLBACK)
    assert report.model == "BPE with byte fallback"
    assert report.single_bytes == 256
    assert report.single_characters == 128 + 4
    assert (report.numbers, report.longest_number) == (10 + 3, 2)
    assert "special tokens spelled out" in report.altered
    assert "emoji" not in report.altered


def test_the_texts_that_a_normaliser_alters() -> None:
    tokenizer = train_tokenizer(TEXTS, 290, append_eos=True)
    backend = tokenizer.backend_tokenizer
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), backend.normalizer])
    kinds = ["capital letters", "ligatures and full-width letters", "other alphabets"]
    assert describe(tokenizer).altered == {kind: (PROBES[kind], PROBES[kind].lower()) for kind in kinds}
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(" ")])
    assert set(describe(tokenizer).altered) == {"combining accents"}


def test_a_long_table_of_a_normaliser_is_not_shown() -> None:
    tokenizer = make_wordpiece()
    tokenizer.backend_tokenizer.normalizer = normalizers.Prepend("x" * 1000)
    assert describe(tokenizer).normalizer == 'Prepend(prepend="…")'


@pytest.mark.parametrize(
    ("tokenizer", "text", "expected"),
    [
        (OWN, "the cat\n", ["␣the", "␣cat", "↵", "</s>"]),
        (OWN, "é漢", ["␣", "\\xc3", "\\xa9", "\\xe6", "\\xbc", "\\xa2", "</s>"]),
        (WORDPIECE, "The cats unseen", ["[CLS]", "the", "cat", "##s", "un", "##seen", "[SEP]"]),
        (WORDPIECE, "dog", ["[CLS]", "[UNK]", "[SEP]"]),
        (UNIGRAM, "the cat x", ["␣the", "␣c", "at", "␣", "<unk>"]),
        (BYTE_FALLBACK, "a é\n", ["␣a", "␣", "\\xc3", "\\xa9", "↵"]),
    ],
)
def test_tokens_as_a_reader_sees_them(tokenizer: PreTrainedTokenizerFast, text: str, expected: list[str]) -> None:
    assert split(tokenizer, text) == expected


def test_a_sign_at_the_end_of_words_is_no_text() -> None:
    model = models.BPE({"a</w>": 0, "1</w>": 1, "a": 2}, [], end_of_word_suffix="</w>")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model))
    assert TokenText(tokenizer).content("a</w>") == b"a"
    assert split(tokenizer, "aa") == ["a", "a</w>"]
    assert describe(tokenizer).numbers == 1


def test_added_tokens_are_shown_as_they_are() -> None:
    foreign = make_unigram()
    foreign.add_tokens([AddedToken("x▁y", normalized=False)])
    assert split(foreign, "the x▁y") == ["␣the", "␣", "x▁y"]
    tokenizer = train_tokenizer(TEXTS, 290, append_eos=False)
    size = describe(tokenizer)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ("▁<2de>Ġ9", "77777", "☃", "\x07")])
    assert "▁<2de>Ġ9" in split(tokenizer, "a ▁<2de>Ġ9 b")
    assert TokenText(tokenizer).content("▁<2de>Ġ9") == "▁<2de>Ġ9".encode()
    after = describe(tokenizer)
    assert after.size == size.size + 4
    assert replace(after, size=size.size) == size


def test_an_id_without_a_token() -> None:
    assert TokenText(OWN).all_shown([0, 99_999]) == ["<pad>", "id=99999"]


def test_the_longest_tokens() -> None:
    text = TokenText(OWN)
    ids = OWN.get_vocab().values()
    longest = text.longest(ids, 290)
    assert len(longest) == 286  # without the special ones
    lengths = [len(token) for token in longest if "\\x" not in token]
    assert lengths == sorted(lengths, reverse=True)
    assert text.longest(ids, 3) == longest[:3]
    assert text.longest([], 3) == ()


@pytest.mark.parametrize("tokenizer", [OWN, train_tokenizer(TEXTS, 290, append_eos=False), BYTE_FALLBACK])
@given(text=st.text())
def test_the_contents_of_the_tokens_are_the_text(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False).input_ids)
    content = b"".join(map(TokenText(tokenizer).content, tokens))
    normalizer = tokenizer.backend_tokenizer.normalizer
    # SentencePiece's way to write a space cannot be told from the sign itself.
    expected = (normalizer.normalize_str(text) if normalizer else text).replace("▁", " ")
    assert content.decode().replace("▁", " ") == expected


@pytest.mark.parametrize("tokenizer", ALL)
@given(text=st.text())
def test_what_is_shown_is_on_one_line_and_printable(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    for shown in (visible(text), *split(tokenizer, text)):
        assert shown.isprintable()
        assert " " not in shown


def test_visible() -> None:
    assert visible("a b\r\n\t\x1b[31m\u200b") == "a␣b␍↵⇥\\x1b[31m\\u200b"
    assert visible("\u0301e") == "◌\u0301e"
    assert visible("") == ""
