"""Counts of what a tokenizer makes of a text, by hand and by properties."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import comparison, train_tokenizer
from paperformer.tokenization.comparison import Measurement, measure

TEXTS = ["the cat sat on the mat", "the dog saw 12 cats in 2017", "ein Hund läuft"] * 5
SEQ2SEQ, LM = train_tokenizer(TEXTS, 290, append_eos=True), train_tokenizer(TEXTS, 290, append_eos=False)


def make_wordpiece() -> PreTrainedTokenizerFast:
    tokens = ["[UNK]", "the", "cat", "sat", "##s", "un", "##seen", "."]
    tokenizer = Tokenizer(models.WordPiece({token: id_ for id_, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


WORDPIECE = make_wordpiece()
ALL = [SEQ2SEQ, LM, WORDPIECE]


def counts(measurement: Measurement) -> Measurement:
    """All but the time, which differs."""
    return replace(measurement, seconds=0)


def test_counts_by_hand() -> None:
    measured = measure(WORDPIECE, ["The cats sat.", "the cats", " \t", "unseen dog"])
    assert measured.seconds > 0
    assert counts(measured) == Measurement(
        sentences=3,  # one is blank
        words=7,  # The cats sat. | the cats | unseen dog
        characters=31,
        bytes=31,
        tokens=11,  # the cat ##s sat . | the cat ##s | un ##seen [UNK]
        unknown=1,
        whole_words=2,  # The, the: not "sat.", nor the unknown dog
        round_trips=1,  # "the cats": not the capital, nor the unknown dog
        seen=frozenset({0, 1, 2, 3, 4, 5, 6, 7}),
    )
    assert measured.fertility == 11 / 7
    assert measured.tokens_per_sentence == 11 / 3
    assert measured.bytes_per_token == 31 / 11
    assert measured.characters_per_token == 31 / 11
    assert measured.unknown_rate == 1 / 11
    assert measured.whole_word_rate == 2 / 7
    assert measured.round_trip_rate == 1 / 3
    assert measured.sentences_per_second == 3 / measured.seconds


def test_bytes_are_not_characters() -> None:
    tokenizer = train_tokenizer(["é é"] * 2, 260, append_eos=False)  # no merges: every byte is a token
    measured = counts(measure(tokenizer, ["é 漢", "a"]))
    assert measured == Measurement(
        sentences=2, words=3, characters=4, bytes=7, tokens=7, whole_words=1, round_trips=2, seen=measured.seen
    )
    assert measured.bytes_per_token == 1
    assert measured.characters_per_token == 4 / 7


def test_what_is_added_at_the_ends_is_not_counted() -> None:
    assert measure(SEQ2SEQ, ["the"]).tokens == 1
    assert len(SEQ2SEQ("the").input_ids) == 2


def test_the_limit_and_padding_of_a_saved_tokenizer_do_not_matter() -> None:
    tokenizer = make_wordpiece()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    tokenizer.model_max_length = 2
    assert measure(tokenizer, ["the cat sat", "the"]).tokens == 4


def test_a_token_of_several_words() -> None:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "New York": 1, " is": 2, " big": 3}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" is", "isolated")
    measured = measure(PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>"), ["New York is big"])
    assert (measured.words, measured.tokens, measured.whole_words) == (4, 3, 4)


def naive_whole_words(tokenizer: PreTrainedTokenizerFast, text: str) -> int:
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    whole, start = 0, 0
    for word in text.split():
        start = text.index(word, start)
        end = start + len(word)
        touching = [
            id_
            for id_, (first, last) in zip(encoded.input_ids, encoded.offset_mapping, strict=True)
            if max(first, start) < min(last, end)
        ]
        whole += len(touching) == 1 and touching != [tokenizer.unk_token_id]
        start = end
    return whole


# White space of every kind, letters of one to four bytes, and words that the tokenizers know.
SENTENCES = st.lists(
    st.sampled_from(
        ["the", "cat", "cats", "dog", ".", " ", "  ", "\t", "\u2003", "\x85", "é", "漢", "🙂", "\u0301", "12"]
    )
).map("".join)


@pytest.mark.parametrize("tokenizer", ALL)
@given(text=SENTENCES)
def test_whole_words_as_counted_one_by_one(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert measure(tokenizer, [text]).whole_words == naive_whole_words(tokenizer, text)


@pytest.mark.parametrize("tokenizer", ALL)
@given(texts=st.lists(SENTENCES | st.text(), max_size=6), cut=st.integers(0, 6))
def test_measurements_add_up(tokenizer: PreTrainedTokenizerFast, texts: list[str], cut: int) -> None:
    both = measure(tokenizer, texts[:cut]) + measure(tokenizer, texts[cut:])
    assert counts(both) == counts(measure(tokenizer, texts))


@pytest.mark.parametrize("tokenizer", [SEQ2SEQ, LM])
@given(texts=st.lists(SENTENCES | st.text(), max_size=6).filter(lambda texts: any(text.strip() for text in texts)))
def test_ratios_and_counts_agree(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> None:
    measured = measure(tokenizer, texts)
    filled = [text for text in texts if text.strip()]
    assert measured.bytes_per_token * measured.tokens == pytest.approx(len("".join(filled).encode()))
    assert measured.characters_per_token * measured.tokens == pytest.approx(len("".join(filled)))
    assert measured.fertility * measured.words == pytest.approx(measured.tokens)
    assert measured.tokens_per_sentence * len(filled) == pytest.approx(measured.tokens)
    assert measured.words == sum(len(text.split()) for text in filled)
    # A byte-level tokenizer gives everything back, and no token is more than the whole text, or less than a byte.
    assert measured.round_trip_rate == 1
    assert measured.unknown_rate == 0
    assert measured.words <= measured.tokens <= measured.bytes + len(filled)
    assert 0 <= measured.whole_word_rate <= 1
    ids = [id_ for text in filled for id_ in tokenizer(text, add_special_tokens=False).input_ids]
    assert measured.tokens == len(ids)
    assert measured.seen == set(ids)


def test_memory_does_not_grow_with_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    measure_batch = comparison._measure_batch

    def watch(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> Measurement:
        sizes.append(sum(map(len, texts)))
        return measure_batch(tokenizer, texts)

    monkeypatch.setattr(comparison, "_measure_batch", watch)
    monkeypatch.setattr(comparison, "CHARACTERS_A_BATCH", 50)
    texts = TEXTS * 3
    in_batches = measure(LM, texts)
    assert 10 < len(sizes) < len(texts) / 2
    assert max(sizes) < 50 + max(map(len, texts))
    monkeypatch.setattr(comparison, "CHARACTERS_A_BATCH", 10**9)
    assert counts(measure(LM, texts)) == counts(in_batches)
    assert sizes[-1] == sum(map(len, texts))


def test_nothing_is_nothing() -> None:
    assert measure(LM, ["", " "]) == measure(LM, []) == Measurement()
