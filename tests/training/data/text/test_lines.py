import gzip
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.text import lines as lines_module
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.lines import BLOCK_BYTES, LONGEST_LINE, count_lines, decode_lines, read_lines

from ....examples import examples

BOM = b"\xef\xbb\xbf"


def lines_of(*blocks: bytes, bad: BadLines | None = None) -> list[str | None]:
    return list(decode_lines(blocks, "name", bad))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (BOM, []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (BOM + b"a\n", ["a"]),
        (b"a" + BOM + b"\n", ["a\ufeff"]),
        (b"a\r\nb\r\n\r\n", ["a", "b", ""]),
        (b"a\rb\r\r\n\rc\n", ["a\rb\r", "\rc"]),
        ("naïve \u2028\x85\x0b\x0c\x1c 語😀\n".encode(), ["naïve \u2028\x85\x0b\x0c\x1c 語😀"]),  # no line ends, these
    ],
)
def test_lines(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    assert list(read_lines(tmp_path / "a.txt")) == list(read_lines(tmp_path / "a.txt.gz")) == expected
    assert count_lines(tmp_path / "a.txt") == count_lines(tmp_path / "a.txt.gz") == len(expected)


def test_kept_line_ends() -> None:
    assert list(decode_lines([BOM + b"a\r\n\n", b"b\nc"], "name", keep_ends=True)) == ["a\n", "\n", "b\n", "c"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\nna\xefve\n", "name, line 3: byte 0xef at byte 3 of the line is not UTF-8; convert to UTF-8"),
        (b"a\nb\n\xe8\xaa", "name, line 3: byte 0xe8 at byte 1 of the line is not UTF-8; convert to UTF-8"),
        (b"\xed\xa0\x80\n", "name, line 1: byte 0xed at byte 1 of the line is not UTF-8; convert to UTF-8"),
        ("one\n".encode("utf-16"), "name, line 1: byte 0xff at byte 1 of the line is not UTF-8; convert to UTF-8"),
        (
            "one\n".encode("utf-16-le"),
            r"name, line 1: byte 2 of the line is NUL; .* \(is it UTF-16\? convert it to UTF",
        ),
        (b"a\nb\0\n", "name, line 2: byte 2 of the line is NUL; a text has none"),
        (b"a\n" + b"x" * (LONGEST_LINE + 1), "name, line 2: the line has more than 1,048,576 bytes; a line must be a"),
    ],
)
def test_bad_lines(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        lines_of(content)


def test_the_lines_before_a_bad_one_come_first() -> None:
    lines = decode_lines([b"one\n", b"two\n\xff\n"], "name")
    assert next(lines) == "one"
    with pytest.raises(InputError, match="line 3"):
        list(lines)


def test_skipped_lines_are_none_and_are_counted_by_reason() -> None:
    bad = BadLines(skip=True)
    assert lines_of(b"a\n\xff\nb\n\0\n\xffc\nd", bad=bad) == ["a", None, "b", None, None, "d"]
    assert bad.counts == {"not UTF-8": 2, "NUL byte": 1}
    assert bad.places == {"not UTF-8": ["name, line 2", "name, line 5"], "NUL byte": ["name, line 4"]}


@pytest.mark.parametrize("before", [b"", b"first\n", b"first\nsecond\n"])
@pytest.mark.parametrize("after", [b"", b"\n", b"\nlast", b"\nlast\n", b"\r\n\xff\nlast\n"])
@pytest.mark.parametrize("length", [LONGEST_LINE + 1, 10_000_000])
def test_a_line_that_is_too_long(before: bytes, after: bytes, length: int) -> None:
    content = before + b"x" * length + after
    blocks = [content[start : start + BLOCK_BYTES] for start in range(0, len(content), BLOCK_BYTES)]
    expected = [
        *before.decode().splitlines(),
        None,
        *([None] if b"\xff" in after else []),
        *["last"] * (b"last" in after),
    ]
    for split in (blocks, [content]):
        bad = BadLines(skip=True)
        assert lines_of(*split, bad=bad) == expected
        assert bad.counts["line too long"] == 1
        number = before.count(b"\n") + 1
        assert bad.places["line too long"] == [f"name, line {number}"]
        assert bad.places.get("not UTF-8", []) == [f"name, line {number + 1}"] * (b"\xff" in after)


def test_the_longest_line_allowed_across_blocks() -> None:
    content = b"a\n" + b"x" * LONGEST_LINE + b"\nb"
    for size in (BLOCK_BYTES, 3 * BLOCK_BYTES + 1, len(content)):
        blocks = [content[start : start + size] for start in range(0, len(content), size)]
        assert [len(line or "") for line in lines_of(*blocks)] == [1, LONGEST_LINE, 1]


def test_a_huge_line_is_not_kept_in_memory() -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100_000):  # 26 GB
            yield block

    block = b"x" * BLOCK_BYTES
    with pytest.raises(InputError, match="line 1: the line has more than"):
        next(decode_lines(endless(), "name"))


def reference(content: bytes, longest: int) -> list[str | None]:
    """Line by line, by regular expression."""
    result: list[str | None] = []
    for line in re.findall(rb"[^\n]*\n|[^\n]+\Z", content.removeprefix(BOM)):
        try:
            text = re.sub(r"\r?\n\Z|\r\Z", "", line.decode())
        except UnicodeDecodeError:
            text = "\0"
        result.append(None if "\0" in text or len(line.removesuffix(b"\n")) > longest else text)
    return result


# Pieces of which faults are made: parts of characters and of marks, line ends, lines about as long as allowed.
marks = [BOM, BOM[:1], BOM[1:], b"\n", b"\r", b"\r\n", b"\0"]
characters = [*map(str.encode, "aé語😀"), b"\xf0\x9f", b"\xff", *(b"x" * length for length in (7, 8, 9, 30))]
contents = st.lists(st.sampled_from(marks + characters) | st.binary(max_size=4), max_size=20).map(b"".join)


@settings(max_examples=examples(500))
@given(contents, st.lists(st.integers(0, 80), max_size=10))
@example(BOM + b"a", [1, 2])
@example(b"\xef\xbb", [1])
@example("a\r\n語\r\n".encode(), [2, 4, 5])
def test_any_split_into_blocks_gives_the_same_lines(content: bytes, cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "LONGEST_LINE", 8)
        expected = reference(content, longest=8)
        places = sorted({min(cut, len(content)) for cut in cuts} | {0, len(content)})
        blocks = [content[start:end] for start, end in pairwise(places)]
        bad = BadLines(skip=True)
        assert lines_of(*blocks, bad=bad) == expected
        assert bad.counts.total() == expected.count(None)
        kept = list(decode_lines(blocks, "name", BadLines(skip=True), keep_ends=True))
        assert [line if line is None else line.removesuffix("\n") for line in kept] == expected
        if None in expected:
            with pytest.raises(InputError, match=f"^name, line {expected.index(None) + 1}: "):
                lines_of(*blocks)


@settings(max_examples=examples(300))
@given(contents)
def test_the_count_is_that_of_the_lines(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "count.txt"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "BLOCK_BYTES", 5)
        assert (
            count_lines(path)
            == len(list(read_lines(path, BadLines(skip=True))))
            == len(reference(content, LONGEST_LINE))
        )
