import json

import pyarrow as pa

from paperformer.training.data.cleaning.report import CleaningReport


def report() -> CleaningReport:
    result = CleaningReport(["empty", "too long", "duplicate"])
    result.rows = 2000
    result.drop("duplicate", [pa.array(["a", "b\x07"]), pa.array(["ein", "zwei"])])
    result.drop("duplicate", [pa.array(["c", "d", "e"]), pa.array(["drei", "vier", "fünf"])])
    result.drop("too long", [pa.array(["x" * 101]), pa.array(["y" * 100])])
    return result


def test_counts_and_first_examples() -> None:
    assert report().kept == 1994
    assert report().dropped == {"empty": 0, "too long": 1, "duplicate": 5}
    assert report().examples["duplicate"] == [["a", "ein"], ["b\x07", "zwei"], ["c", "drei"]]
    assert report().examples["too long"] == [["x" * 99 + "…", "y" * 100]]


def test_json() -> None:
    facts = json.loads(json.dumps(report().to_dict()))
    assert facts["rows"] == 2000
    assert facts["kept"] == 1994
    assert list(facts["dropped"].items()) == [("empty", 0), ("too long", 1), ("duplicate", 5)]
    assert list(facts["examples"]) == ["too long", "duplicate"]
    assert facts["leaked_lines"] == 0


def test_table() -> None:
    few = CleaningReport(["empty", "duplicate"])
    few.rows = 2000
    few.drop("duplicate", [pa.array(["a", "b\x07"]), pa.array(["ein", "zwei"])])
    few.leaked_lines = 7
    assert few.table("data.train").splitlines() == [
        "data.train: kept 1,998 of 2,000 rows",
        "           2   0.100%  duplicate",
        "                         a | ein",
        "                         b\\x07 | zwei",
        "           7   0.350%  kept, also in the evaluation sets",
    ]


def test_a_table_of_nothing() -> None:
    assert CleaningReport(["empty"]).table("data.train") == "data.train: kept 0 of 0 rows"
