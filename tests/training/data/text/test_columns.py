import pyarrow as pa
import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.columns import good_rows


def strings(*values: bytes | None) -> pa.Array:
    """An array of strings whose bytes may be anything."""
    content = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(content), content.buffers())


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (None, "null", r"place, row 9: column 'b' is null; it must be a string"),
        (b"x\0", "NUL byte", r"place, row 9: column 'b' has NUL at byte 2; a text has none"),
        (b"xy\xff", "not UTF-8", r"place, row 9: column 'b' has byte 0xff at byte 3, which is not UTF-8"),
        (b"x" * 6, "line too long", r"place, row 9: column 'b' has more than 5 bytes"),
    ],
)
def test_a_row_with_a_bad_value_is_left_out_as_a_whole(value: bytes | None, reason: str, detail: str) -> None:
    columns = {"a": strings(b"1", b"2", b"3"), "b": strings(b"4", value, "é".encode())}
    with pytest.raises(InputError, match=detail):
        good_rows(columns, "place", 7, BadLines(), longest=5)
    bad = BadLines(skip=True)
    assert [column.to_pylist() for column in good_rows(columns, "place", 7, bad, longest=5)] == [["1", "3"], ["4", "é"]]
    assert bad.counts == {reason: 1}
    assert bad.places == {reason: ["place, row 9"]}


def test_good_columns_come_back_as_strings_of_any_length() -> None:
    columns = {"text": pa.array(["x" * 2_000_000, ""], pa.large_string())}
    (text,) = good_rows(columns, "place", 0, BadLines())
    assert text.type == pa.string()
    assert text.to_pylist() == ["x" * 2_000_000, ""]
