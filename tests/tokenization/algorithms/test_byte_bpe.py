"""Byte-level BPE: words, digits, padding, the library's own vocabulary."""

import itertools
import json

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import train_tokenizer

ENGLISH = ["the cat sat on the mat", "the dog saw the cat", "on the 12th of May 2017, at 12:30"] * 5
GERMAN = ["die Katze saß auf der Matte", "der Hund sah die Katze", "am 12. Mai 2017 um 12:30 Uhr"] * 5
PAD, BOS, EOS = 0, 1, 2


def train(*, append_eos: bool, vocab_size: int = 300, **options) -> PreTrainedTokenizerFast:
    return train_tokenizer(ENGLISH + GERMAN, vocab_size, append_eos=append_eos, **options)


SEQ2SEQ = train(append_eos=True)
LM = train(append_eos=False)


def test_seq2seq_appends_one_eos_and_pads_on_the_right() -> None:
    batch = SEQ2SEQ(["the cat", "the cat sat on the mat"], padding=True)
    short, long = batch.input_ids
    assert long.count(EOS) == short.count(EOS) == 1
    assert long[-1] == EOS
    padding = short[short.index(EOS) + 1 :]
    assert padding == [PAD] * len(padding) != []
    assert SEQ2SEQ("").input_ids == [EOS]
    assert SEQ2SEQ(text_target="the cat").input_ids == SEQ2SEQ("the cat").input_ids


def test_lm_appends_nothing_and_pads_on_the_left() -> None:
    short, long = LM(["the cat", "the cat sat on the mat"], padding=True).input_ids
    assert not {BOS, EOS} & {*short, *long}
    assert short[0] == PAD != short[-1]
    assert LM("").input_ids == []


def test_models_get_only_the_inputs_they_take() -> None:
    assert set(SEQ2SEQ("the cat")) == set(LM("the cat")) == {"input_ids", "attention_mask"}


def test_truncation_keeps_eos() -> None:
    tokenizer = train(append_eos=True, model_max_length=5)
    ids = tokenizer("the cat sat on the mat, and the dog saw it", truncation=True).input_ids
    assert len(ids) == 5
    assert ids[-1] == EOS


def test_prefix_space_gives_a_word_one_token_at_start_and_inside() -> None:
    first, second, eos = SEQ2SEQ("the the").input_ids
    assert first == second
    assert eos == EOS
    first, second = LM("the the").input_ids
    assert first != second


def test_lm_decodes_a_continuation_with_its_space() -> None:
    prompt, text = "the cat", "the cat sat on"
    ids = LM(text).input_ids
    assert ids[: len(LM(prompt).input_ids)] == LM(prompt).input_ids
    assert prompt + LM.decode(ids[len(LM(prompt).input_ids) :]) == text


def test_split_digits() -> None:
    tokens = train(append_eos=False, split_digits=True).tokenize("am 12. Mai 2017")
    assert [token for token in tokens if any(map(str.isdigit, token))] == list("122017")
    assert "2017" in "".join(LM.tokenize("2017"))
    assert len(LM.tokenize("2017")) < 4, "without split_digits a frequent number is merged"


def test_offsets_point_into_the_text() -> None:
    text = "the cat saß auf"
    for tokenizer in (SEQ2SEQ, LM):
        encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
        pieces = [text[start:end].strip() for start, end in encoded.offset_mapping]
        assert pieces[0] == "the"
        words = encoded.tokens()
        assert pieces[words.index("Ġcat")] == "cat"
        covered = {i for start, end in encoded.offset_mapping for i in range(start, end)}
        assert covered == set(range(len(text)))


def test_joint_vocabulary_shares_tokens() -> None:
    joint = train_tokenizer(itertools.chain(ENGLISH, GERMAN), 300, append_eos=True)
    english_only = train_tokenizer(ENGLISH, 280, append_eos=True)
    assert "ĠKatze" in joint.get_vocab()
    assert "Ġcat" in joint.get_vocab()
    assert "ĠKatze" not in english_only.get_vocab()


@pytest.mark.parametrize("vocab_size", [260, 261, 300])
def test_vocabulary_size_is_exact(vocab_size: int) -> None:
    tokenizer = train(append_eos=True, vocab_size=vocab_size)
    assert len(tokenizer) == vocab_size
    assert sorted(tokenizer.get_vocab().values()) == list(range(vocab_size))


@pytest.mark.parametrize("prefix_space", [True, False])
def test_the_library_decides_what_is_learned(prefix_space: bool) -> None:
    bare = Tokenizer(models.BPE(unk_token="<unk>"))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    if prefix_space:
        bare.normalizer = normalizers.Prepend(" ")
        bare.decoder = decoders.Sequence([bare.decoder, decoders.Strip(" ", left=1, right=0)])
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        min_frequency=2,
        special_tokens=["<pad>", "<s>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator(ENGLISH + GERMAN, trainer=trainer)
    ours = json.loads(train(append_eos=False, prefix_space=prefix_space).backend_tokenizer.to_str())
    assert ours | {"post_processor": None} == json.loads(bare.to_str())  # transformers sets one that adds nothing
