"""Lines that somebody enters in a terminal."""

from collections.abc import Sequence
from typing import Any

import pytest

from paperformer.translation.interactive import PROMPT, converse
from paperformer.translation.streaming import as_text


def enter(monkeypatch: pytest.MonkeyPatch, *entered: str | Exception) -> list[str]:
    """Lines, or what is raised instead; returns the prompts."""
    prompts: list[str] = []
    rest = iter([*entered, EOFError()])

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        line = next(rest)
        if isinstance(line, Exception):
            raise line
        return line

    monkeypatch.setattr("builtins.input", ask)
    return prompts


def shout(texts: Sequence[str], note: Any) -> list[str]:
    (text,) = texts
    if "long" in text:
        note(0, "it is long")
    return [text.upper()]


def test_each_line_is_translated_before_the_next_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "invalid start byte")
    prompts = enter(monkeypatch, "one", "  ", wrong, "a long\x01one")
    seen: list[Any] = []

    def prepared(lines: Any) -> Any:
        for line in lines:
            seen.append((line.number, capsys.readouterr().out))
            yield line

    converse(prepared, shout, as_text)
    assert prompts == [PROMPT] * 5
    assert seen == [(1, ""), (2, "ONE\n")]
    out, err = capsys.readouterr()
    assert out == "A LONG ONE\n\n"  # and the last prompt's line is ended
    assert err.endswith("it is long\n")


def test_what_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    enter(monkeypatch, UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "invalid start byte"))
    converse(lambda lines: lines, shout, as_text)
    assert capsys.readouterr().err.splitlines() == [
        "Enter a line to translate; Ctrl-D ends.",
        "that is not UTF-8 (byte 0xff), and was not translated",
    ]
