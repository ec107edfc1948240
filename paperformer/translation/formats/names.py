"""What formats are called, and what is said of a file besides; here apart because it takes no time to import."""

from dataclasses import dataclass
from typing import Literal

FormatName = Literal["text", "gettext", "xliff", "tmx", "tsv", "csv", "jsonl"]


@dataclass(frozen=True)
class FormatOptions:
    """What a command says of a file; see `commands.text.translation.translate`. What is empty is not said."""

    column: str = ""
    header: bool | None = None
    field: str = ""
    into: str = ""
    source_language: str = ""
    target_language: str = ""
    fuzzy_below: float = 0.5
