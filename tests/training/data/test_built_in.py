import pytest

from paperformer.training.cldr import expression_pairs
from paperformer.training.data.bad_lines import BadLines
from paperformer.training.data.built_in import BuiltInPairs, BuiltInText
from paperformer.training.input_error import InputError
from paperformer.training.shakespeare import play_splits


def test_expressions() -> None:
    expected = expression_pairs("en", "nl")
    for split in ("validation", "test"):
        reader = BuiltInPairs(dataset="cldr", split=split, languages=("en", "nl"))
        rows = [(row["source"], row["target"]) for chunk in reader.chunks(BadLines()) for row in chunk.to_pylist()]
        assert rows == expected[split]
        assert reader.files() == []


def test_plays_are_documents() -> None:
    reader = BuiltInText(dataset="shakespeare", split="test")
    rows = [(row["text"], row["begins"]) for chunk in reader.chunks(BadLines()) for row in chunk.to_pylist()]
    assert rows == [(play, True) for play in play_splits()["test"]]


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (BuiltInPairs(dataset="shakespeare", split="test", languages=("en", "de")), "there is built-in:cldr"),
        (BuiltInPairs(dataset="cldr", split="dev", languages=("en", "nl")), "has no split 'dev'; it has train, valid"),
        (BuiltInPairs(dataset="cldr", split="test", languages=("en", "xx")), "data.source_language, data.target_lang"),
        (BuiltInText(dataset="cldr", split="test"), "there is built-in:shakespeare"),
        (BuiltInText(dataset="shakespeare", split="dev"), "has no split 'dev'; it has train, validation, test"),
    ],
)
def test_what_there_is_not(reader: BuiltInPairs | BuiltInText, message: str) -> None:
    with pytest.raises(InputError, match=message):
        reader.files() + list(reader.chunks(BadLines()))
