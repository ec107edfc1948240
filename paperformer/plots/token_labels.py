"""Tokens as a reader sees them: bytes decoded, white space and control characters visible, no empty boxes."""

import unicodedata
from collections.abc import Sequence
from functools import cache

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ..training.progress import say

VISIBLE = {" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "▁": "␣"}  # ▁ is SentencePiece's space
LONGEST = 20  # characters of a label
POINTS = 72.0  # an inch
PLAIN_FONT = "DejaVu Sans"  # ships with matplotlib


def readable_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """The label of each token: its text, with spaces as ␣, line ends as ↵, and what is no whole character as \\xNN."""
    byte_of = {symbol: byte for byte, symbol in bytes_to_unicode().items()}
    backend = getattr(tokenizer, "backend_tokenizer", None)  # only fast tokenizers have one
    is_byte_level = backend is not None and "ByteLevel" in str(backend.decoder)
    added = tokenizer.get_added_vocab()
    labels = []
    for index, token in zip(ids, tokenizer.convert_ids_to_tokens(list(ids)), strict=True):
        if not token:  # the model's vocabulary may be larger than the tokenizer's
            token = f"id={index}"
        elif is_byte_level and token not in added:
            # A character of several bytes may be divided between tokens: no text, so its bytes are shown.
            token = bytes(byte_of[symbol] for symbol in token).decode("utf-8", errors="backslashreplace")
        labels.append(_visible(token))
    return labels


def _visible(token: str) -> str:
    shown = "".join(VISIBLE.get(symbol, symbol if symbol.isprintable() else ascii(symbol)[1:-1]) for symbol in token)
    if unicodedata.category(shown[0]).startswith("M"):  # an accent with no letter to sit on
        shown = f"◌{shown}"
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def drawable_labels(*sides: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Labels without characters that no installed font has, side by side as given, and the fonts to draw them with.

    Such characters are written as their code points, U+4E2D, and are named once on standard error.
    """
    missing = {symbol for labels in sides for label in labels for symbol in label} - _characters(_plain_font_path())
    families = [PLAIN_FONT]
    for family, path in _other_fonts():
        if not missing:
            break
        if found := missing & _characters(path):
            families.append(family)
            missing -= found
    if missing:
        say(f"no installed font can draw {' '.join(sorted(missing))}: shown as code points (Noto fonts draw most)")

    def shown(label: str) -> str:
        return "".join(f"U+{ord(symbol):04X}" if symbol in missing else symbol for symbol in label)

    return [[shown(label) for label in labels] for labels in sides], families


def _plain_font_path() -> str:
    from matplotlib.font_manager import findfont

    return str(findfont(PLAIN_FONT))


def _other_fonts() -> list[tuple[str, str]]:
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
def _characters(font_path: str) -> frozenset[str]:
    from matplotlib.font_manager import get_font

    return frozenset(map(chr, get_font(font_path).get_charmap()))


def text_width(text: str, size: float, families: Sequence[str] = (PLAIN_FONT,)) -> float:
    """Inches that a text takes in a font of that size in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=list(families), size=size)
    width, *_ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / POINTS
