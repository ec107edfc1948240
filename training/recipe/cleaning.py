"""What is done with text before anything is learned from it."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from .checks import check_at_least

Normalization = Literal["none", "NFC", "NFKC"]
Duplicates = Literal["keep", "exact", "normalized"]


@dataclass(kw_only=True)
class Cleaning:
    """What is done with the text before anything is learned from it. Empty sentences and documents are always left out.

    Of running text, a row that is a whole document is checked like a sentence. A line of joined text is left out for
    damage alone (control characters and mojibake): a text is more than its lines, which may be empty or repeated.
    """

    normalization: Normalization = "NFC"
    """Normal form of Unicode (Unicode Standard Annex 15): NFC writes é one way and changes nothing that can be seen,
    NFKC also makes ordinary characters of ligatures, full-width letters, ½ and no-break spaces."""

    strip: bool = True
    """Take away white space around sentences; running text keeps its own."""

    control_characters: bool = True
    """Leave out rows with control characters (tabs and line ends are none), characters of private use, or U+FFFD, the
    mark of unreadable bytes."""

    mojibake: bool = True
    """Leave out rows in which UTF-8 was read as another encoding, so that ö became Ã¶."""

    min_words: int = 1
    """Leave out sentences and documents with fewer words; three letters of Chinese, Japanese or Thai are a word."""

    max_characters: int = 2000
    """Leave out pairs with a longer side, which are hardly sentences; 0 for no limit. Running text has none."""

    max_length_ratio: float = 9.0
    """Leave out pairs of which one side is more than so many times as long as the other, in characters, after 10 are
    added to both; 0 for no limit."""

    drop_copies: bool = True
    """Leave out pairs of four words or more whose target equals their source; shorter ones may be names."""

    leak_check: bool = True
    """Leave out of the training text what the evaluation sets hold, whatever its case and punctuation: pairs of which a
    side of four words or more, or both sides, are those of an evaluation pair, and equal documents of fifty characters
    or more. Joined lines of that length are counted, and kept."""

    duplicates: Duplicates = "exact"
    """Leave out pairs and documents that occurred before: exactly, or (normalized) but for case, punctuation and white
    space."""

    language_identification: bool = False
    """Leave out sentences and documents that are clearly in another language than the recipe's. It needs
    `pip install 'paperformer[langid]'` and a tenth of a millisecond a sentence."""

    def __post_init__(self) -> None:
        for name, choices in [("normalization", Normalization), ("duplicates", Duplicates)]:
            value = getattr(self, name)
            if value not in get_args(choices):
                raise ValueError(f"{name} is '{value}'; it must be one of {', '.join(get_args(choices))}")
        check_at_least(self, 1, "min_words")
        check_at_least(self, 0, "max_characters")
        if self.max_length_ratio != 0 and not 1 <= self.max_length_ratio < math.inf:
            raise ValueError(f"max_length_ratio is {self.max_length_ratio}; it must be 0 or at least 1")
