"""Tokens as a reader sees them: bytes decoded, white space and control characters visible, no empty boxes."""

from collections.abc import Sequence
from functools import cache

from transformers import PreTrainedTokenizerBase

from ..tokenization.report import TokenText
from ..training.console.progress import say

LONGEST = 20  # characters of a label
PLAIN_FONT = "DejaVu Sans"  # ships with matplotlib


def read_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """The label of each token, as `TokenText` shows it, cut off where it is long."""
    shown = TokenText(tokenizer).all_shown(ids)
    return [label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…" for label in shown]


def find_drawable_labels(*sides: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Labels without characters that no installed font has, side by side as given, and the fonts to draw them with.

    Such characters are written as their code points, U+4E2D, and are named once on standard error.
    """
    missing = {symbol for labels in sides for label in labels for symbol in label} - _read_charset(_find_plain_font())
    families = [PLAIN_FONT]
    for family, path in _list_fonts():
        if not missing:
            break
        if found := missing & _read_charset(path):
            families.append(family)
            missing -= found
    if missing:
        say(f"no installed font can draw {' '.join(sorted(missing))}: shown as code points (Noto fonts draw most)")

    def shown(label: str) -> str:
        return "".join(f"U+{ord(symbol):04X}" if symbol in missing else symbol for symbol in label)

    return [[shown(label) for label in labels] for labels in sides], families


def _find_plain_font() -> str:
    from matplotlib.font_manager import findfont

    return str(findfont(PLAIN_FONT))


def _list_fonts() -> list[tuple[str, str]]:
    """Family and path of the upright fonts of normal weight on this machine, in a fixed order."""
    from matplotlib.font_manager import fontManager

    # Last Resort draws every character as a box with its code point; the old fonts of TeX and the non-Unicode ones have
    # other glyphs than the characters say.
    unusable = ("Last Resort", "cm", "STIXNonUnicode", "STIXSize")
    return sorted(
        (font.name, font.fname)
        for font in fontManager.ttflist
        if font.style == "normal" and font.weight in (400, "normal") and not font.name.startswith(unusable)
    )


@cache
def _read_charset(font_path: str) -> frozenset[str]:
    from matplotlib.font_manager import get_font

    return frozenset(map(chr, get_font(font_path).get_charmap()))
