"""Byte-level BPE: round trip, special tokens, saving, errors."""

import contextlib
import itertools
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import train_bpe

ENGLISH = ["the cat sat on the mat", "the dog saw the cat", "on the 12th of May 2017, at 12:30"] * 5
GERMAN = ["die Katze saß auf der Matte", "der Hund sah die Katze", "am 12. Mai 2017 um 12:30 Uhr"] * 5
PAD, BOS, EOS, UNK = 0, 1, 2, 3


def train(*, append_eos: bool, vocab_size: int = 300, **options) -> PreTrainedTokenizerFast:
    return train_bpe(ENGLISH + GERMAN, vocab_size, append_eos=append_eos, **options)


SEQ2SEQ = train(append_eos=True)
LM = train(append_eos=False)
VARIANTS = [
    train(append_eos=append_eos, prefix_space=prefix_space, split_digits=split_digits)
    for append_eos, prefix_space, split_digits in itertools.product([True, False], repeat=3)
]


@pytest.mark.parametrize("tokenizer", VARIANTS)
@given(text=st.text())
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
def test_every_text_is_reproduced(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


@pytest.mark.parametrize("tokenizer", [SEQ2SEQ, LM])
@given(text=st.text())
@example("</s>")
@example("a </s> b <s> <pad> <unk>")
def test_text_never_becomes_a_special_token(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer(text).input_ids
    if tokenizer is SEQ2SEQ:
        assert ids.pop() == EOS
    assert not set(ids) & {PAD, BOS, EOS, UNK}


@pytest.mark.parametrize("tokenizer", VARIANTS)
def test_special_tokens_have_fixed_ids(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.convert_tokens_to_ids(["<pad>", "<s>", "</s>", "<unk>"]) == [PAD, BOS, EOS, UNK]
    assert tokenizer.pad_token_id == PAD
    assert tokenizer.bos_token_id == BOS
    assert tokenizer.eos_token_id == EOS
    assert tokenizer.unk_token_id == UNK


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
    joint = train_bpe(itertools.chain(ENGLISH, GERMAN), 300, append_eos=True)
    english_only = train_bpe(ENGLISH, 280, append_eos=True)
    assert "ĠKatze" in joint.get_vocab()
    assert "Ġcat" in joint.get_vocab()
    assert "ĠKatze" not in english_only.get_vocab()


@pytest.mark.parametrize("vocab_size", [260, 261, 300])
def test_vocabulary_size_is_exact(vocab_size: int) -> None:
    tokenizer = train(append_eos=True, vocab_size=vocab_size)
    assert len(tokenizer) == vocab_size
    assert sorted(tokenizer.get_vocab().values()) == list(range(vocab_size))


def test_training_is_deterministic(tmp_path: Path) -> None:
    """In one process, and in another one, whose hash seeds differ; the order of the texts does not matter."""
    train(append_eos=True).save_pretrained(tmp_path / "here")
    code = f"""if True:
        from paperformer.tokenization import train_bpe
        tokenizer = train_bpe(reversed({ENGLISH + GERMAN!r}), 300, append_eos=True)
        tokenizer.save_pretrained({str(tmp_path / "there")!r})"""
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


LOAD_WITHOUT_PAPERFORMER = """if True:
    import json, sys
    sys.modules["paperformer"] = None  # from here on, importing it raises ImportError
    from transformers import AutoTokenizer
    folder, texts = sys.argv[1], json.loads(sys.argv[2])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(texts).input_ids
    print(json.dumps({
        "ids": ids,
        "texts": tokenizer.batch_decode(ids, skip_special_tokens=True),
        "padded": tokenizer(texts, padding=True).input_ids,
        "keys": sorted(tokenizer(texts)),
        "model_max_length": tokenizer.model_max_length,
        "vocab": len(tokenizer),
    }))
"""


@pytest.mark.parametrize("append_eos", [True, False])
def test_autotokenizer_loads_it_without_paperformer(append_eos: bool, tmp_path: Path) -> None:
    tokenizer = train(append_eos=append_eos, model_max_length=64)
    tokenizer.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["clean_up_tokenization_spaces"] is False

    texts = ["the cat", "  die Katze </s> saß ", "", "👩‍👧 e\u0301"]
    result = subprocess.run(
        [sys.executable, "-I", "-c", LOAD_WITHOUT_PAPERFORMER, str(tmp_path), json.dumps(texts)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,  # a question to the user would end in an error
    )
    loaded = json.loads(result.stdout)
    assert loaded["ids"] == tokenizer(texts).input_ids
    assert loaded["texts"] == texts
    assert loaded["padded"] == tokenizer(texts, padding=True).input_ids
    assert loaded["keys"] == ["attention_mask", "input_ids"]
    assert loaded["model_max_length"] == 64
    assert loaded["vocab"] == len(tokenizer)


def test_a_corpus_is_read_once_and_lazily() -> None:
    tokenizer = train_bpe(iter(ENGLISH), 270, append_eos=False)
    assert len(tokenizer) == 270


def test_progress_goes_to_a_terminal() -> None:
    code = f"""if True:
        from paperformer.tokenization import train_bpe
        train_bpe(iter({ENGLISH!r}), 270, append_eos=False)"""
    terminal, stderr = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stderr=stderr):
        os.close(stderr)  # the child holds the only copy: when it ends, reading ends with an OSError
        shown = b""
        with contextlib.suppress(OSError):
            while chunk := os.read(terminal, 4096):
                shown += chunk
    os.close(terminal)
    assert b"Compute merges" in shown


def test_a_log_gets_no_progress_bar(capfd: pytest.CaptureFixture[str]) -> None:
    train(append_eos=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("texts", [[], ["", ""], iter(())])
def test_empty_corpus_is_refused(texts) -> None:
    with pytest.raises(ValueError, match="texts is empty"):
        train_bpe(texts, 300, append_eos=True)


def test_one_string_is_refused() -> None:
    with pytest.raises(TypeError, match="one string"):
        train_bpe("the cat", 300, append_eos=True)


def test_too_small_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match=r"vocab_size is 259.*at least 260"):
        train(append_eos=True, vocab_size=259)


def test_min_frequency_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="min_frequency is 0"):
        train(append_eos=True, min_frequency=0)


def test_a_smaller_vocabulary_than_asked_for_warns() -> None:
    with pytest.warns(UserWarning, match="vocabulary has 261 tokens instead of vocab_size=300"):
        tokenizer = train_bpe(["ab", "ab", "xy"], 300, append_eos=False)
    assert "ab" in tokenizer.get_vocab()
    assert "xy" not in tokenizer.get_vocab(), "a pair below min_frequency was merged"
