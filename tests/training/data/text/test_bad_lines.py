import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.data.text.bad_lines import EXAMPLES_A_REASON, BadLines


def test_a_bad_line_stops_the_run_by_default() -> None:
    bad = BadLines()
    with pytest.raises(InputError, match=r"^a\.tsv, line 7: no tab; a line must have one$"):
        bad.report("a.tsv, line 7", "no tab", "no tab; a line must have one")
    assert not bad.counts


def test_skipped_lines_are_counted_by_reason_with_the_first_places() -> None:
    bad = BadLines(skip=True)
    for number in range(1, 11):
        bad.report(f"a.tsv, line {number}", "no tab" if number % 2 else "NUL byte", "detail")
    bad.report("b.tsv, line 1", "other", "detail")
    assert bad.counts == {"no tab": 5, "NUL byte": 5, "other": 1}
    assert bad.places == {
        "no tab": [f"a.tsv, line {number}" for number in (1, 3, 5)],
        "NUL byte": [f"a.tsv, line {number}" for number in (2, 4, 6)],
        "other": ["b.tsv, line 1"],
    }
    assert EXAMPLES_A_REASON == 3
