"""Files of records, translated by something that takes no time: upper case for words, and placeholders as they are."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from paperformer.translation.formats.file_formats import read_records
from paperformer.translation.formats.names import FormatOptions
from paperformer.translation.formats.records import Outcome, translate_records
from paperformer.translation.line_source import ReadAhead
from paperformer.translation.streaming import Notes


def shout(texts: Sequence[str], note: Notes) -> list[str]:
    """Upper case, save placeholders."""
    return [re.sub(r"(?<![%{&])\b[a-zäöü]+\b", lambda match: match[0].upper(), text) for text in texts]


@dataclass
class Result:
    content: bytes
    outcome: Outcome
    notes: list[tuple[int, str]]
    texts: list[str]
    records: int


@pytest.fixture
def translated() -> Callable[..., Result]:
    def run(content: str | bytes, found: Any, translate: Any = shout, block: int = 1 << 16, **options: Any) -> Result:
        raw = content if isinstance(content, bytes) else content.encode()
        file = io.BytesIO(raw)
        result = Result(b"", Outcome(), [], [], 0)

        def spy(texts: Sequence[str], note: Notes) -> list[str]:
            result.texts += texts
            return translate(texts, note)

        records = read_records(lambda count: file.read(min(count, block)), "x", found, FormatOptions(**options))
        source = ReadAhead(records, lambda record: record.size)
        parts = list(translate_records(spy, source, lambda *note: result.notes.append(note), result.outcome))
        result.content = b"".join(part for part, _ in parts)
        result.records = sum(count for _, count in parts)
        return result

    return run
