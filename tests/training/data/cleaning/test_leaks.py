import pytest

from paperformer.training.data.cleaning.leaks import Leaks, find_seen
from paperformer.training.data.text.chunks import pair_chunk, text_chunk

EVALUATION = pair_chunk(
    ["Where is the station?", "Thank you.", "How are you doing today?", "今天天气很好我们去公园吧"],
    ["Wo ist denn der Bahnhof?", "Danke.", "Wie geht's?", "The weather is nice today."],
)


@pytest.fixture(scope="module")
def leaks() -> Leaks:
    return Leaks([EVALUATION.slice(0, 2), EVALUATION.slice(2)])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Where is the station?", "Wo ist denn der Bahnhof?"),
        ("where is THE station", "Etwas anderes."),
        ("Something else.", "Wo ist denn, der Bahnhof!"),
        ("thank you", "danke"),  # few words, but the whole pair
        ("How are you doing today?", "Wie geht es?"),
        ("今天天气很好，我们去公园吧。", "Something else."),
    ],
)
def test_found(leaks: Leaks, source: str, target: str) -> None:
    assert leaks.find(pair_chunk([source], [target])).tolist() == [True]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Where is the exit?", "Wo ist der Ausgang?"),
        ("Thank you.", "Vielen Dank."),  # everywhere
        ("Thanks a lot.", "Danke."),
        ("How is it going?", "Wie geht's?"),
        ("Thank you.", "Wie geht's?"),  # two short halves of different pairs
        ("Wo ist denn der Bahnhof?", "Where is the station?"),  # the other direction
    ],
)
def test_not_found(leaks: Leaks, source: str, target: str) -> None:
    assert leaks.find(pair_chunk([source], [target])).tolist() == [False]


def test_each_row_by_itself(leaks: Leaks) -> None:
    chunk = pair_chunk(["x", "Where is the station", "Thank you"], ["y", "z", "y"])
    assert leaks.find(chunk).tolist() == [False, True, False]
    assert leaks.find(chunk.slice(0, 0)).tolist() == []


def test_what_was_seen_is_what_would_be_a_leak() -> None:
    """Each row of the evaluation set by itself, against training text in two pieces."""
    training = [
        pair_chunk(["x", "Thank you.", "How are you doing today"], ["y", "Wie geht's?", "z"]),
        pair_chunk(["Thanks a lot.", "a", "b"], ["Danke.", "the weather is nice today", "Wo ist er?"]),
    ]
    alone = [any(Leaks([EVALUATION.slice(row, 1)]).find(chunk).any() for chunk in training) for row in range(4)]
    assert find_seen(EVALUATION, training).tolist() == alone == [False, False, True, True]
    assert find_seen(text_chunk(["CHAPTER ONE"]), [text_chunk(["CHAPTER ONE"])]).tolist() == [False]


def test_running_text() -> None:
    long = "It was the best of times, it was the worst of times, wrote Dickens."
    leaks = Leaks([text_chunk([long, "CHAPTER ONE"])])
    chunk = text_chunk([long.upper(), "CHAPTER ONE", long + " Indeed."])
    assert leaks.find(chunk).tolist() == [True, False, False]


def test_without_evaluation_sets_nothing_is_found() -> None:
    assert Leaks([]).find(EVALUATION).tolist() == [False] * 4
