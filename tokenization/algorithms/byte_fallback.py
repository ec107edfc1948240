"""Byte fallback: a character without a token of its own is spelled with the tokens of its UTF-8 bytes.

As in SentencePiece (Kudo and Richardson, 2018, arXiv 1808.06226), the token of byte 0x41 is `<0x41>`.

A text may contain the six characters `<0x41>`, or `</s>`, too. They stay text, because no token is learned across the
`<` and the letters behind it: each algorithm splits words there.
"""

from collections.abc import Mapping

from ..reserved_tokens import ReservedTokens

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def list_base_tokens(reserved: ReservedTokens) -> list[str]:
    """The tokens that no text decides on, at the places of their ids."""
    return reserved.all + BYTE_TOKENS


def spell(word: str, vocab: Mapping[str, int]) -> list[int]:
    """Spell a word in the ids of its characters, or of the bytes of those that have no token."""
    ids: list[int] = []
    for character in word:
        if character in vocab:
            ids.append(vocab[character])
        else:
            ids += [vocab[BYTE_TOKENS[byte]] for byte in character.encode()]
    return ids
