from functools import partial

import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.data.built_in import readers
from paperformer.training.data.built_in.cldr import expression_pairs
from paperformer.training.data.built_in.readers import BuiltInPairs, BuiltInText
from paperformer.training.data.built_in.shakespeare import play_splits
from paperformer.training.data.text.bad_lines import BadLines


def test_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    few = partial(expression_pairs, pairs=1_000, validation=50, test=50)
    monkeypatch.setattr(readers, "expression_pairs", few)
    readers._expressions.cache_clear()
    expected = few("en", "nl")
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
