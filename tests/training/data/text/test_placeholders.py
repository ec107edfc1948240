import pytest

from paperformer.training.data.text.placeholders import find_difference, find_numbers, find_placeholders


def test_placeholders_do_not_depend_on_layout() -> None:
    assert find_placeholders("%s of %5d, {name} <B class='x'>100%ig</b> %% %1") == [
        "%1$s", "%2$d", "{name}", "<b>", "</b>", "%1",
    ]  # fmt: skip
    assert find_placeholders("plain text, 3 < 4") == []


def test_numbers_are_groups_of_digits_in_any_script() -> None:
    assert find_numbers("1,000 of ٤٥ at %1$s") == ["1", "000", "45"]


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("%s of %s", "%2$s: %1$s", None),
        ("1,000 files", "1.000 Dateien", None),
        ("Save %s", "Sichern", ("other placeholders or tags", "missing: %1$s; not in the source: none")),
        (
            "<b>a</b> <b>c</b>",
            "<b>a c</b>",
            ("other placeholders or tags", "missing: </b>, <b>; not in the source: none"),
        ),
        ("Page 12", "Seite 21", ("other numbers", "missing: 12; not in the source: 21")),
        ("7 of 7", "7 von", ("other numbers", "missing: 7; not in the source: none")),
    ],
)
def test_what_a_translation_has_not_kept(source: str, translation: str, expected: tuple[str, str] | None) -> None:
    assert find_difference(source, translation) == expected
