"""The space before the text, which makes a word the same token at the start of a text as inside it.

`normalizers.Prepend` puts it before each text, and before each part of a text that user symbols cut it into.

Not the library's own options (`add_prefix_space`, `prepend_scheme`): these add a space only to a text that has none at
its start, so that "a" and " a" become the same tokens. Always adding one and always taking one away keeps them apart.
"""

import re
from collections.abc import Sequence

from tokenizers import Regex, decoders
from tokenizers.decoders import Decoder


def build_strippers(user_symbols: Sequence[str]) -> list[Decoder]:
    """Last steps of a decoder: they take the prefix spaces away from the decoded text."""
    at_start = decoders.Strip(" ", left=1, right=0)
    if not user_symbols:
        return [at_start]
    after_symbols = Regex(f"(?<={'|'.join(map(re.escape, user_symbols))}) ")
    return [decoders.Replace(after_symbols, ""), at_start]
