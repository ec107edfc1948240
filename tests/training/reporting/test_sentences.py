"""The sentences of a scored test split that tell most."""

from collections.abc import Sequence

import numpy as np
import pytest

from paperformer.training.evaluation.evaluation_file import hash_pairs
from paperformer.training.evaluation.passages import PassageLosses
from paperformer.training.evaluation.scored_split import ScoredSplit, compare_splits
from paperformer.training.reporting.sentences import Shown, find_differences, find_extremes

PAIRS = [[f"source {number}", f"the reference {number} of a sentence"] for number in range(30)]
SIGNATURE = "nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:2.6.0"


def translations(outputs: Sequence[str]) -> ScoredSplit:
    entry = {"bleu": {"score": 1.0, "signature": SIGNATURE}, "pairs_sha256": hash_pairs(PAIRS)}
    return ScoredSplit(entry=entry, outputs=outputs, pairs=PAIRS)


def passages(nats: Sequence[float], sizes: int | None = 1000) -> ScoredSplit:
    count = len(nats)
    losses = PassageLosses(
        nats=np.array(nats),
        tokens=np.full(count, 250),
        bytes=None if sizes is None else np.full(count, sizes),
        sha256="same",
    )
    return ScoredSplit(
        entry={"passages_sha256": "same"}, losses=losses, texts=[f"text {number}" for number in range(count)]
    )


def lines(shown: Sequence[Shown]) -> list[int]:
    return [one.line for one in shown]


def test_translations_from_both_ends() -> None:
    outputs = [reference for _, reference in PAIRS]
    outputs[7], outputs[3] = "zzz", "the reference 3 of something"
    found = find_extremes(translations(outputs), count=2)
    assert found is not None
    assert (found.count, found.unit, found.columns) == (30, "sentences", ["chrF"])
    assert lines(found.groups["The worst"]) == [8, 4]
    best = found.groups["The best"]
    assert lines(best) == [11, 12]  # of the equally good, the longer
    assert best[0].values == ["100.0"]
    texts = dict(found.groups["The worst"][1].texts)
    assert [word for word, is_shared in texts["output"] if not is_shared] == ["something"]
    assert [word for word, is_shared in texts["reference"] if not is_shared] == ["a", "sentence"]


def test_case_counts_only_where_it_was_scored() -> None:
    outputs = [reference.upper() for _, reference in PAIRS]
    found = find_extremes(translations(outputs), count=1)  # the signature says case:lc
    assert found is not None
    assert found.groups["The worst"][0].values == ["100.0"]


def test_passages_by_bits_a_byte_or_by_nats_a_token() -> None:
    nats = [500.0] * 10
    nats[2], nats[6] = 900.0, 100.0
    for sizes, worst, title in ((1000, f"{0.9 / np.log(2):.3f}", "Bits a byte"), (None, "3.600", "Loss, nats a token")):
        found = find_extremes(passages(nats, sizes), count=1)
        assert found is not None
        assert (lines(found.groups["The worst"]), lines(found.groups["The best"])) == ([3], [7])
        assert found.groups["The worst"][0].values == [worst]
        assert found.columns == [title]
        assert found.groups["The worst"][0].texts == [("text", [("text 2", True)])]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_sentences_are_shown_once(count: int) -> None:
    found = find_extremes(passages([float(number) for number in range(count)]))
    assert found is not None
    assert sorted(line for shown in found.groups.values() for line in lines(shown)) == list(range(1, count + 1))


def test_what_was_not_kept_is_not_shown() -> None:
    assert find_extremes(ScoredSplit(entry={})) is None
    assert find_differences(ScoredSplit(entry={}), ScoredSplit(entry={}), ("a", "b")) is None


def test_where_two_systems_differ() -> None:
    good = [reference for _, reference in PAIRS]
    first, second = list(good), list(good)
    first[4], second[9] = "zzz", "zzz"
    found = find_differences(translations(first), translations(second), ("one", "two"))
    assert found is not None
    assert {title: lines(shown) for title, shown in found.groups.items()} == {
        "two is better": [5],
        "one is better": [10],
    }
    (better,) = found.groups["two is better"]
    assert [name for name, _ in better.texts] == ["source", "reference", "one", "two"]
    assert better.values == ["0.0", "100.0", "+100.0"]
    assert found.columns == ["chrF, one", "chrF, two", "Difference"]


def test_a_lower_loss_is_better() -> None:
    found = find_differences(passages([500.0, 500.0]), passages([400.0, 500.0]), ("one", "two"))
    assert found is not None
    assert {title: lines(shown) for title, shown in found.groups.items()} == {"two is better": [1], "one is better": []}


def test_other_sentences_do_not_compare() -> None:
    other = ScoredSplit(entry={"pairs_sha256": "another"}, outputs=["x"] * 30, pairs=PAIRS)
    system = translations(["x"] * 30)
    assert find_differences(other, system, ("one", "two")) is None
    assert compare_splits(other, system) == ([], "the test sentences are others")
