from typing import Any

from paperformer.training.evaluation.evaluation_file import hash_pairs
from paperformer.training.evaluation.scored_split import ScoredSplit, compare_splits

PAIRS = [("A dog", "Ein Hund"), ("Two men", "Zwei Männer")]


def split(**changes: Any) -> ScoredSplit:
    entry = {"bleu": {"score": 1.0, "signature": "nrefs:1|case:mixed|tok:13a"}, "pairs_sha256": hash_pairs(PAIRS)}
    return ScoredSplit(**({"entry": entry, "pairs": PAIRS, "outputs": ["Ein Hund", "Zwei Hunde"]} | changes))


def test_what_was_scored_alike_is_compared() -> None:
    comparisons, untested = compare_splits(split(), split(outputs=["Ein Hund", "Zwei Männer"]))
    assert [comparison.metric.name for comparison in comparisons] == ["bleu"]
    assert untested == ""


def test_references_that_are_not_those_that_were_scored_say_nothing() -> None:
    for pairs in ([], [PAIRS[0], ("Two men", "Drei Frauen")]):
        comparisons, untested = compare_splits(split(), split(pairs=pairs))
        assert comparisons == []
        assert untested.startswith("the reference translations are not here")


def test_each_sentence_needs_a_translation_by_both() -> None:
    comparisons, untested = compare_splits(split(outputs=["Ein Hund"]), split())
    assert comparisons == []
    assert "has not a translation of each sentence" in untested
