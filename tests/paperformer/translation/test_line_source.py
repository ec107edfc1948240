import io
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.translation import line_source
from paperformer.translation.line_source import Line, ReadAhead, clean_lines


def in_blocks(content: bytes, size: int) -> Callable[[int], bytes]:
    file = io.BytesIO(content)
    return lambda count: file.read(min(size, count))


@given(st.lists(st.binary(max_size=20)), st.integers(1, 9))
def test_there_is_a_line_for_each_whatever_the_bytes_are(lines: list[bytes], size: int) -> None:
    content = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    found = list(clean_lines(in_blocks(content, size)))
    assert [line.number for line in found] == list(range(1, len(lines) + 1))
    assert not any(set(line.text) & set(map(chr, [*range(9), *range(10, 32), 127])) for line in found)
    assert found == list(clean_lines(in_blocks(content, 1000)))


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]))))
def test_text_comes_as_it_is(lines: list[str]) -> None:
    content = "".join(f"{line}\r\n" for line in lines).encode("utf-8-sig")
    assert list(clean_lines(in_blocks(content, 7))) == [Line(number, line) for number, line in enumerate(lines, 1)]


def test_a_last_line_needs_no_end() -> None:
    assert [line.text for line in clean_lines(in_blocks(b"a\n\nb", 1))] == ["a", "", "b"]


@pytest.mark.parametrize(
    ("line", "text", "fault"),
    [
        (b"caf\xe9 ol\xe9", "caf ol", "what is not UTF-8 was left out, 0xe9 at byte 4 and 1 more"),
        (b"caf\xe9", "caf", "what is not UTF-8 was left out, 0xe9 at byte 4 and no other"),
        (b"a\0\x1bb", "a b", "control characters were taken for blanks, the first is U+0000"),
        ("a\u2028b".encode(), "a b", "control characters were taken for blanks, the first is U+2028"),
        (b"a\tb", "a\tb", None),
    ],
)
def test_what_cannot_be_text_is_left_out_and_said(line: bytes, text: str, fault: str | None) -> None:
    assert list(clean_lines(in_blocks(b"x\n" + line, 100)))[1] == Line(2, text, (fault,) if fault else ())


@pytest.mark.parametrize("size", [3, 1000])
def test_of_an_endless_line_the_beginning_is_kept(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(line_source, "LONGEST_LINE", 11)
    first, second = clean_lines(in_blocks("ééééééé".encode() + b"\nok", size))
    assert first == Line(1, "ééééé", ("it has more than 11 bytes, and the rest was left out",))
    assert second == Line(2, "ok")


def test_a_line_is_there_before_the_next_one_is_written() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as file, open(writing, "wb", buffering=0) as pipe:  # noqa: PTH123 - by their numbers
        lines = ReadAhead(clean_lines(file.read1))
        for text in ("one", "two"):
            pipe.write(f"{text}\n".encode())
            assert [line.text for line in lines.take(10)] == [text]
        pipe.write(b"three")
        pipe.close()
        assert [line.text for line in lines.take(10)] == ["three"]
        assert lines.take(10) == []


def test_lines_that_are_there_are_taken_together_up_to_a_count() -> None:
    lines = ReadAhead(Line(number, "x") for number in range(1, 8))
    while len(lines._ready) < 7:
        time.sleep(0.001)
    assert [[line.number for line in lines.take(3)] for _ in range(4)] == [[1, 2, 3], [4, 5, 6], [7], []]


@pytest.mark.parametrize("text", ["", "x" * 1000])
def test_it_reads_ahead_so_far_and_no_further(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(line_source, "READ_AHEAD", 10_000)
    read = 0

    def endless() -> Iterator[Line]:
        nonlocal read
        while True:
            read += 1
            yield Line(read, text)

    lines = ReadAhead(endless())
    most = 10_000 // (100 + len(text)) + 2
    for _ in range(20):
        lines.take(5)
        time.sleep(0.002)
        assert len(lines._ready) <= most
    assert read <= 100 + most
    lines.close()
    time.sleep(0.05)
    assert threading.active_count() < 50
    stopped = read
    time.sleep(0.02)
    assert read == stopped


def test_what_fails_comes_after_the_lines_before_it() -> None:
    def failing() -> Iterator[Line]:
        yield Line(1, "a")
        raise OSError("gone")

    lines = ReadAhead(failing())
    assert [line.text for line in lines.take(5)] == ["a"]
    with pytest.raises(OSError, match="gone"):
        lines.take(5)
