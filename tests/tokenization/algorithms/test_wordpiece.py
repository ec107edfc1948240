"""WordPiece: longest match first, and exactly what is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import train_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:the vocabulary has")  # tiny texts have few pairs

STEMS = ["walk", "talk", "jump", "sing", "play", "look"]
TEXTS = [
    f"{stem}{end} the {stem}{other}, {stem}! In 2017" for stem in STEMS for end in ("ing", "ed") for other in ("s", "")
]


def train(*, append_eos: bool = True, vocab_size: int = 93, **options) -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, vocab_size, append_eos=append_eos, algorithm="wordpiece", **options)


TOKENIZER = train()


def decoded(text: str, tokenizer: PreTrainedTokenizerFast = TOKENIZER) -> str:
    return tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True)


def test_continuations_are_marked() -> None:
    assert TOKENIZER.tokenize("walkings, thews", add_special_tokens=False) == [
        "walking",
        "##s",
        ",",
        "the",
        "##w",
        "##s",
    ]
    assert decoded("walkings") == "walkings"


@given(st.lists(st.sampled_from(["walking", "the", "2017", ",", "!", "plays"])))
def test_words_and_punctuation_come_back_with_one_space_between(words: list[str]) -> None:
    assert decoded(" ".join(words)) == " ".join(words)


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("In walking, the!", "In walking , the !"),  # a space on both sides of punctuation
        ("  the\t\nwalks ", "the walks"),  # white space of any kind and number
        ("wa\x00lk\x07s", "walks"),  # control characters
        ("the ☃ walks", "the <unk> walks"),  # characters that the texts do not have often enough, and
        ("the☃walks", "<unk>"),  # the words that they are in
        ("a" * 101, "<unk>"),  # words of more than 100 characters
    ],
)
def test_what_is_lost(text: str, back: str) -> None:
    assert TOKENIZER.decode(TOKENIZER(text).input_ids[:-1]) == back


def test_case_and_accents_are_kept() -> None:
    tokenizer = train_tokenizer(["Äpfel äße É e\u0301"] * 3, 60, append_eos=True, algorithm="wordpiece")
    assert decoded("Äpfel äße É e\u0301", tokenizer) == "Äpfel äße É e\u0301"


def test_every_text_of_known_characters_is_known() -> None:
    letters = sorted({character for text in TEXTS for character in text if character.isalnum()})
    assert 3 not in TOKENIZER("".join(letters) + " " + "".join(reversed(letters))).input_ids
    assert TOKENIZER.tokenize("".join(reversed(letters)))[0][0] == letters[-1]


def test_split_digits() -> None:
    assert TOKENIZER.tokenize("2017") == ["2017"]
    split = train(split_digits=True)
    assert split.tokenize("2017") == ["2", "##0", "##1", "##7"]
    assert decoded("In 2017", split) == "In 2017"


def test_chinese_characters_are_words_and_punctuation_continues_nothing() -> None:
    tokenizer = train_tokenizer(["日本語, 日本!"] * 3, 60, append_eos=True, algorithm="wordpiece")
    assert tokenizer.tokenize("日本") == ["日", "本"]
    assert not {"##日", "##,", "##!"} & tokenizer.get_vocab().keys()
    assert {"日", ",", "!"} <= tokenizer.get_vocab().keys()


def test_text_never_becomes_a_special_token() -> None:
    ids = TOKENIZER("</s> <s> <pad> <mask>").input_ids
    assert ids.pop() == 2
    assert not set(ids) & {0, 1, 2}
