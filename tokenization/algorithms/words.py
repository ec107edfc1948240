"""The way from a text to token ids, with another way to segment a word than the tokenizer's own.

For subword regularisation: training data is segmented differently each time, by an algorithm that the tokenizers
library lacks, or has without a seed. Everything around it stays as the tokenizer does it.
"""

import re
from collections.abc import Callable, Iterable

from transformers import PreTrainedTokenizerFast


def encode_by_words(
    tokenizer: PreTrainedTokenizerFast, texts: Iterable[str], segment: Callable[[str], list[int]]
) -> list[list[int]]:
    """Encode texts, segmenting each word by a function.

    Args:
        tokenizer: A tokenizer of `train_tokenizer`; it is not changed.
        texts: The texts to encode.
        segment: From a word, as the tokenizer's model would get it, to token ids.

    Returns:
        One list of token ids for each text, ended by `</s>` if the tokenizer appends it; not padded, not truncated.
    """
    backend = tokenizer.backend_tokenizer
    added = {token.content: (index, token.special) for index, token in backend.get_added_tokens_decoder().items()}
    # The leftmost match and, of these, the longest, as in the library.
    pattern = re.compile("|".join(map(re.escape, sorted(added, key=len, reverse=True))) or r"(?!)")
    suffix: list[int] = tokenizer("").input_ids  # </s>, if the tokenizer appends one

    def encode_between(text: str) -> list[int]:
        if backend.normalizer is not None and text:
            text = backend.normalizer.normalize_str(text)
        words = (
            [text] if backend.pre_tokenizer is None else [w for w, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        )
        return [index for word in words if word for index in segment(word)]

    encoded = []
    for text in texts:
        ids: list[int] = []
        done = 0
        for match in pattern.finditer(text):
            index, special = added[match.group()]
            if special and tokenizer.split_special_tokens:
                continue
            ids += encode_between(text[done : match.start()])
            ids.append(index)
            done = match.end()
        encoded.append(ids + encode_between(text[done:]) + suffix)
    return encoded
