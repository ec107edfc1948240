import re
import unicodedata

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.data.unseen_words import count_unseen_words

SOME = ["Dog", "dog,", "cat", "naïve", "nai\u0308ve", "don't", "12", "3rd", "Ｆｕｌｌ", "\u00a0", "—", "ß"]
TEXTS = st.lists(st.lists(st.sampled_from(SOME)).map(" ".join))


def counted(texts: list[str], *training: list[str]) -> tuple[list[int], list[int]]:
    pieces = (pa.array(piece, pa.string()) for piece in training)
    found = count_unseen_words(pa.array(texts, pa.string()), pieces)
    return found.words.tolist(), found.unseen.tolist()


def words_of(text: str) -> list[str]:
    """The definition, in Python."""
    folded = unicodedata.normalize("NFKC", text).lower()
    return re.findall(r"[^\W\d_]+", folded)


@given(TEXTS, TEXTS, TEXTS)
def test_words_are_counted_as_one_by_one(texts: list[str], first: list[str], second: list[str]) -> None:
    seen = {word for text in first + second for word in words_of(text)}
    words = [words_of(text) for text in texts]
    assert counted(texts, first, second) == (
        [len(own) for own in words],
        [sum(word not in seen for word in own) for own in words],
    )


def test_case_punctuation_and_numbers_make_no_difference() -> None:
    assert counted(["The DOG, (it) runs!", "1987: 12%", "", "It"], ["the dog", "Runs it"]) == (
        [4, 0, 0, 1],
        [0, 0, 0, 0],
    )
    assert counted(["a zebra — a zebra"], ["A dog"]) == ([4], [2])
    assert counted(["zebra"]) == ([1], [1])


def test_scripts_without_spaces_have_no_words_to_count() -> None:
    assert counted(["東京タワー", "ภาษาไทย", "東京 Tower"], ["x"]) == ([0, 0, 1], [0, 0, 1])


def test_the_training_text_is_read_no_further_than_needed() -> None:
    def endless() -> object:
        while True:
            yield pa.array(["a dog"])

    assert count_unseen_words(pa.array(["Dog"]), endless()).unseen.tolist() == [0]  # type: ignore[arg-type]


def test_shares_are_of_words() -> None:
    found = count_unseen_words(pa.array(["a b c", "d", "1"]), [pa.array(["a b"])])
    assert found.share() == 2 / 4
    assert found.share(found.unseen == 0) is None
