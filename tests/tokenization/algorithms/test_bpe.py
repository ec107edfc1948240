"""BPE with byte fallback: words with their space, rare characters in bytes."""

from collections import Counter

import pytest
from tokenizers import Tokenizer, models, normalizers, trainers
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import train_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:the vocabulary has")  # tiny texts have few pairs

TEXTS = ["the cat sat on the mat", "the dog saw the cat", "am 12. Mai 2017 um 12:30 Uhr", "„Katze“, ‚Hund‘"] * 5
RARE = "日本語"


def train(*, append_eos: bool = True, vocab_size: int = 330, **options) -> PreTrainedTokenizerFast:
    return train_tokenizer([*TEXTS, RARE], vocab_size, append_eos=append_eos, algorithm="bpe", **options)


def learned(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    vocab = tokenizer.get_vocab()
    return sorted(vocab, key=vocab.__getitem__)[4 + 256 :]


def test_a_word_has_one_token_at_start_and_inside() -> None:
    assert train().tokenize("the the", add_special_tokens=False) == ["▁the", "▁the"]
    first, *rest = train(append_eos=False).tokenize("the the")
    assert first != "▁the"
    assert rest[-1] == "▁the"


def test_characters_below_min_frequency_are_spelled_in_bytes() -> None:
    tokenizer = train()
    assert not set(RARE) & tokenizer.get_vocab().keys()
    assert tokenizer.tokenize("日", add_special_tokens=False) == ["▁", "<0xE6>", "<0x97>", "<0xA5>"]
    assert set(RARE) <= train(min_frequency=1).get_vocab().keys()


def test_tokens_are_of_letters_or_digits_or_other_characters() -> None:
    def kind(character: str) -> str:
        return "letter" if character.isalpha() else "digit" if character.isnumeric() else "other"

    tokens = [token.removeprefix("▁") for token in learned(train(vocab_size=500))]
    assert any(len(token) > 3 for token in tokens)
    for token in tokens:
        assert len(set(map(kind, token))) <= 1, token


def test_split_digits() -> None:
    assert "▁2017" in train(vocab_size=500).tokenize("2017")
    tokens = train(vocab_size=500, split_digits=True).tokenize("am 12. Mai 2017")
    assert [token for token in tokens if any(map(str.isdigit, token))] == list("122017")


def test_it_learns_what_the_library_learns() -> None:
    """Rare characters among the texts cost none of the merges."""
    ours = train(vocab_size=320)
    bare = Tokenizer(models.BPE())
    bare.normalizer = normalizers.Prepend(" ")
    bare.pre_tokenizer = ours.backend_tokenizer.pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=320 - 260, min_frequency=2, show_progress=False)
    bare.train_from_iterator(TEXTS, trainer=trainer)
    assert set(learned(ours)) == bare.get_vocab().keys()
    assert len(bare.get_vocab()) == 60


def test_the_most_frequent_characters_fill_a_small_vocabulary() -> None:
    counts = Counter("".join(TEXTS).replace(" ", ""))
    most_frequent = sorted(counts, key=lambda character: (-counts[character], character))
    assert learned(train(vocab_size=260 + 4)) == ["▁", *most_frequent[:3]]


def test_offsets_point_into_the_text() -> None:
    text = "the cat 日 ▁ saß"
    encoded = train()(text, return_offsets_mapping=True, add_special_tokens=False)
    assert encoded.offset_mapping[0] == (0, 3)
    covered = {i for start, end in encoded.offset_mapping for i in range(start, end)}
    assert covered == set(range(len(text)))
