from paperformer.training.console.tables import align_rows, make_printable


def test_columns_are_aligned_whatever_the_script() -> None:
    lines = align_rows([["文文", "1", "x"], ["a", "100", ""], ["e\u0301e", "20", "z"]], right=[1]).splitlines()
    assert lines == ["文文    1  x", "a     100", "e\u0301e     20  z"]


def test_wrapping_loses_nothing() -> None:
    text = "ab文cd\u0301e文"
    lines = align_rows([[text, "x"], ["short", "y"]], widest={0: 5}).splitlines()
    assert [line.rstrip("xy ") for line in lines] == ["ab文c", "d\u0301e文", "short"]
    assert [line[-1] for line in lines if line[-1] in "xy"] == ["x", "y"]
    assert make_printable("a\nb\u2028\ud800c") == "a\ufffdb\ufffd\ufffdc"
