"""User symbols are matched whole; special tokens only where programs place them."""

from typing import get_args

import pytest
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import train_tokenizer
from paperformer.tokenization.algorithms import AlgorithmName

pytestmark = pytest.mark.filterwarnings("ignore:the vocabulary has")  # tiny texts have few pairs

ALGORITHMS = list(get_args(AlgorithmName))
TEXTS = ["<2de> the cat sat on the mat; the cats, too.", "<2fr>die Katze saß auf der Matte, die Katzen auch."] * 5


def train(algorithm: str = "byte_bpe", *, append_eos: bool = True, **options) -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, 320, append_eos=append_eos, algorithm=algorithm, **options)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_user_symbol_is_one_token_wherever_it_stands(algorithm: str) -> None:
    tokenizer = train(algorithm, user_symbols=["<2de>", "<2fr>", "<2"])
    de, fr, start = tokenizer.convert_tokens_to_ids(["<2de>", "<2fr>", "<2"])
    for text, symbols in [("<2de>the cat", [de]), ("a<2fr><2de>b", [fr, de]), ("the <2fr", [start]), ("2de>", [])]:
        ids = tokenizer(text).input_ids
        assert [index for index in ids if index in (de, fr, start)] == symbols, text
        if algorithm != "wordpiece":
            assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert "<2de>" in tokenizer.decode([de], skip_special_tokens=True)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_user_symbols_are_found_whatever_becomes_of_special_tokens(algorithm: str) -> None:
    tokenizer = train(algorithm, user_symbols=["<2de>"], mask_token=True)
    de, mask = tokenizer.convert_tokens_to_ids(["<2de>", "<mask>"])
    text = "<2de>the <mask> sat"
    assert tokenizer.split_special_tokens is True
    assert tokenizer(text).input_ids.count(de) == 1
    assert mask not in tokenizer(text).input_ids
    assert tokenizer(text, split_special_tokens=False).input_ids.count(mask) == 1


@pytest.mark.parametrize("algorithm", ["byte_bpe", "bpe", "unigram"])
def test_a_word_behind_a_symbol_is_the_word_it_is_elsewhere(algorithm: str) -> None:
    tokenizer = train(algorithm, user_symbols=["<2de>"])
    assert tokenizer("<2de>the cat").input_ids[1:] == tokenizer("the cat").input_ids
    lm = train(algorithm, append_eos=False, user_symbols=["<2de>"])
    assert lm("<2de> the cat").input_ids[1:] == lm(" the cat").input_ids


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_is_learned_from_symbols(algorithm: str) -> None:
    texts = ["<2de>xyz, xyzx", "<2fr>xyz, xyzx"] * 9

    def learned(**options) -> set[str]:
        vocab = train_tokenizer(texts, 400, append_eos=True, algorithm=algorithm, **options).get_vocab()
        fixed = {"byte_bpe": 256, "wordpiece": 0}.get(algorithm, 256) + 4 + len(options.get("user_symbols", ()))
        return {token for token, index in vocab.items() if index >= fixed}

    def of_symbols(tokens: set[str]) -> set[str]:
        return {token for token in tokens if set(token) & set("<2defr>")}

    assert of_symbols(learned())
    tokens = learned(user_symbols=["<2de>", "<2fr>"])
    assert tokens
    assert not of_symbols(tokens)


@pytest.mark.parametrize("algorithm", ["byte_bpe", "bpe", "unigram", "characters"])
def test_a_symbol_that_is_a_character_of_the_texts_too(algorithm: str) -> None:
    tokenizer = train(algorithm, user_symbols=["e", "the"], normalization="NFKC")
    for text in ("the cat e", "ｅ, ｔｈｅ"):  # the latter is found only after normalisation
        decoded = tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True)
        assert decoded in ("the cat e", "e, the")
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        (["<2de>", ""], r"user_symbols\[1\] is empty"),
        (["<2de>", "<2fr>", "<2de>"], "'<2de>' is given twice"),
        (["</s>"], "'</s>' overlaps with the special token </s>"),
        (["<extra_id_1>"], "overlaps with the special token <extra_id_1>"),
        (["s>"], "'s>' overlaps with the special token <s>"),
        ([">>"], "'>>' overlaps with the special token <pad>"),
        (["a b"], "'a b' has white space"),
        (["a\u2028"], "has white space"),
        (["a\x10"], "control character"),
        (["\ud800"], "lone surrogate"),
    ],
)
def test_symbols_that_could_be_missed_are_refused(symbols: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(user_symbols=symbols, sentinels=2)


@pytest.mark.parametrize(
    ("algorithm", "symbol"),
    [
        ("byte_bpe", "«fr»"),
        ("byte_bpe", "Ġ"),
        ("bpe", "▁"),
        ("bpe", "<0x41>"),
        ("unigram", "a▁b"),
        ("characters", "<0x41>"),
        ("wordpiece", "##ing"),
    ],
)
def test_symbols_with_a_meaning_of_their_own_are_refused(algorithm: str, symbol: str) -> None:
    with pytest.raises(ValueError, match="means something else to this algorithm"):
        train(algorithm, user_symbols=[symbol])


def test_one_string_of_symbols_is_refused() -> None:
    with pytest.raises(TypeError, match="user_symbols is one string"):
        train(user_symbols="<2de>")


def test_negative_number_of_sentinels_is_refused() -> None:
    with pytest.raises(ValueError, match="sentinels is -1, and must be at least 0"):
        train(sentinels=-1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_placeholders_are_found_where_people_write_them(algorithm: str) -> None:
    """And stand for a word with the space before it, as the tokens do that they hide."""
    tokenizer = train(algorithm, mask_token=True, sentinels=1, find_special_tokens=True, append_eos=False)
    mask, sentinel = tokenizer.convert_tokens_to_ids(["<mask>", "<extra_id_0>"])
    for placeholder, token in (("<mask>", mask), ("<extra_id_0>", sentinel)):
        ids = tokenizer(f"the {placeholder} sat").input_ids
        place = ids.index(token)
        before = tokenizer("the").input_ids
        if algorithm == "characters":  # whose tokens hold no space
            before += tokenizer("the a").input_ids[len(before) : -1]
        assert ids[:place] == before
        assert tokenizer.decode(ids[place + 1 :]).strip() == "sat"
