"""The tokens that every vocabulary starts with: the special ones, then the user's symbols.

Their ids depend on no text: `<pad>` 0, `<s>` 1, `</s>` 2, `<unk>` 3, then `<mask>` and `<extra_id_0>`, `<extra_id_1>`,
... if asked for, then the user's symbols in the order given.

A special token is never found in a text, however the text is spelled: only programs place it; unless a tokenizer is to
find them, because people write `<mask>` where a model is to fill something in. A user symbol, such as the language tag
`<2de>`, is found wherever its characters stand, and is never split.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer

PAD_TOKEN, BOS_TOKEN, EOS_TOKEN, UNK_TOKEN = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL_TOKENS = (PAD_TOKEN, BOS_TOKEN, EOS_TOKEN, UNK_TOKEN)  # ids 0, 1, 2, 3
EOS_ID, UNK_ID = SPECIAL_TOKENS.index(EOS_TOKEN), SPECIAL_TOKENS.index(UNK_TOKEN)
MASK_TOKEN = "<mask>"


@dataclass(frozen=True, kw_only=True)
class ReservedTokens:
    """The reserved tokens of one vocabulary.

    Raises:
        TypeError: `user_symbols` is one string instead of many.
        ValueError: `sentinel_count` is negative; or a user symbol is empty, is given twice, has white space or a
            control character, or overlaps with a special token.
    """

    mask: bool
    """Whether there is a `<mask>`, which stands for hidden tokens (Devlin et al., 2018, arXiv 1810.04805)."""

    sentinel_count: int
    """How many `<extra_id_N>` there are, which stand for hidden spans (Raffel et al., 2020, arXiv 1910.10683)."""

    user_symbols: Sequence[str]
    """What is matched whole."""

    def __post_init__(self) -> None:
        if self.sentinel_count < 0:
            raise ValueError(f"sentinels is {self.sentinel_count}, and must be at least 0")
        if isinstance(self.user_symbols, str):
            raise TypeError("user_symbols is one string; pass a list of strings, such as [symbol]")
        for position, symbol in enumerate(self.user_symbols):
            if not symbol:
                raise ValueError(f"user_symbols[{position}] is empty; a symbol has at least one character")
            if any(character.isspace() or unicodedata.category(character) in ("Cc", "Cs") for character in symbol):
                raise ValueError(f"user symbol {symbol!r} has white space, a control character or a lone surrogate")
            if symbol in self.user_symbols[:position]:
                raise ValueError(f"user symbol {symbol!r} is given twice")
            for token in self.special:
                if _overlap(symbol, token):
                    raise ValueError(f"user symbol {symbol!r} overlaps with the special token {token}; choose another")

    @property
    def sentinels(self) -> list[str]:
        """`<extra_id_0>` and so on."""
        return [f"<extra_id_{number}>" for number in range(self.sentinel_count)]

    @property
    def special(self) -> list[str]:
        """The special tokens, at the places of their ids."""
        return [*SPECIAL_TOKENS, *[MASK_TOKEN] * self.mask, *self.sentinels]

    @property
    def all(self) -> list[str]:
        """All reserved tokens, at the places of their ids."""
        return [*self.special, *self.user_symbols]

    def __str__(self) -> str:
        symbols = f", {len(self.user_symbols)} user symbols" if self.user_symbols else ""
        return f"{len(self.special)} special tokens{symbols}"

    def add_to(self, tokenizer: Tokenizer, *, words_begin_with_space: bool) -> None:
        """Tell the tokenizer which of its tokens are special, and which are user symbols.

        Args:
            words_begin_with_space: Whether a token of the vocabulary holds the space before a word; a placeholder, in
                the place of such tokens, then takes that space too.

        Raises:
            ValueError: The tokenizer's decoder would read a user symbol as something else.
        """
        placeholders = [
            AddedToken(token, special=True, normalized=False, lstrip=words_begin_with_space)
            for token in self.special[len(SPECIAL_TOKENS) :]
        ]
        tokenizer.add_special_tokens([*SPECIAL_TOKENS, *placeholders])
        tokenizer.add_tokens([AddedToken(symbol, special=False, normalized=False) for symbol in self.user_symbols])
        for symbol in self.user_symbols:
            if symbol not in tokenizer.decoder.decode(["x", symbol, "x"]):
                raise ValueError(f"user symbol {symbol!r} means something else to this algorithm; choose another")


def _overlap(symbol: str, token: str) -> bool:
    """Whether a special token in a text can hide a symbol.

    The tokenizer looks for the leftmost match and, of these, the longest. A special token found so is put back as plain
    text, and a symbol that lies inside it, or begins with its end, is no longer found.
    """
    ends = [token[start:] for start in range(len(token))]
    return any(end.startswith(symbol) for end in ends) or any(symbol.startswith(end) for end in ends[1:])
