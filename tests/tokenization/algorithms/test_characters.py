"""Characters as tokens."""

from collections import Counter

import pytest

from paperformer.tokenization import train_tokenizer

TEXTS = ["the cat sat on the mat", "saß 日 → !", "der Hund"]
COUNTS = Counter("".join(TEXTS))


@pytest.mark.parametrize("min_frequency", [1, 2, 5])
def test_characters_that_occur_often_enough_are_the_vocabulary(min_frequency: int) -> None:
    tokenizer = train_tokenizer(TEXTS, 400, append_eos=True, algorithm="characters", min_frequency=min_frequency)
    ids = tokenizer.get_vocab()
    learned = [token for token in sorted(ids, key=ids.get) if ids[token] >= 260]
    assert set(learned) == {character for character, count in COUNTS.items() if count >= min_frequency}
    assert [COUNTS[character] for character in learned] == sorted((COUNTS[c] for c in learned), reverse=True)


def test_a_token_is_a_character_and_the_rest_is_bytes() -> None:
    tokenizer = train_tokenizer(TEXTS, 400, append_eos=False, algorithm="characters")
    assert tokenizer.tokenize("the cat") == ["t", "h", "e", " ", "<0x63>", "a", "t"]
    assert tokenizer.tokenize("日") == ["<0xE6>", "<0x97>", "<0xA5>"]


def test_vocab_size_is_an_upper_bound_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert len(train_tokenizer(TEXTS, 400, append_eos=True, algorithm="characters")) < 300
    assert not recwarn.list
    small = train_tokenizer(TEXTS, 262, append_eos=True, algorithm="characters")
    assert {token for token, index in small.get_vocab().items() if index >= 260} == {" ", "t"}
