"""BPE-dropout: a word is segmented differently each time, as a regulariser for training.

Provilkov et al., 2020, "BPE-Dropout: Simple and Effective Subword Regularization", arXiv 1910.13267. The
vocabulary and the merges stay those of the trained tokenizer, and inference stays deterministic: only
training data passes through here.

Why not `BPE.dropout` of the tokenizers library (0.23): its random number generator takes no seed, so runs
could be neither repeated nor resumed; it is written into the saved tokenizer; and it draws again for a merge
that was left out whenever an outdated entry leaves its queue, so that it splits less than the paper's
algorithm at the same p.
"""

import json
from collections.abc import Iterable
from itertools import pairwise
from random import Random

from transformers import PreTrainedTokenizerFast

from .algorithms.byte_fallback import spell
from .algorithms.words import encode_by_words

# A pair of neighbouring token ids -> (the merge's rank, lower is earlier; the id of the merged token).
Merges = dict[tuple[int, int], tuple[int, int]]


def encode_with_bpe_dropout(
    tokenizer: PreTrainedTokenizerFast, texts: Iterable[str], *, dropout: float, seed: int
) -> list[list[int]]:
    """Encode texts, leaving out each possible merge with probability `dropout` at each step.

    This is algorithm 1 of the paper.

    Args:
        tokenizer: A BPE of `train_tokenizer`, `byte_bpe` or `bpe`; it is not changed.
        texts: The texts to encode.
        dropout: Probability p of leaving out a merge. The paper uses 0.1, and 0.6 for Chinese and Japanese;
            with 0 the result is `tokenizer(texts).input_ids`, with 1 it is single bytes or characters.
        seed: The same seed gives the same segmentations; take another one each epoch.

    Returns:
        One list of token ids for each text, ended by `</s>` if the tokenizer appends it; not padded, not
        truncated.

    Raises:
        ValueError: `dropout` is not in [0, 1], or the tokenizer's model is not a BPE.
    """
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout is {dropout}, and must be a probability from 0 to 1")
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    if model["type"] != "BPE":
        raise ValueError(f"BPE-dropout needs a BPE tokenizer, and this tokenizer's model is {model['type']}")
    vocab: dict[str, int] = model["vocab"]
    merges: Merges = {
        (vocab[left], vocab[right]): (rank, vocab[left + right]) for rank, (left, right) in enumerate(model["merges"])
    }
    random = Random(seed)
    return encode_by_words(tokenizer, texts, lambda word: _segment(spell(word, vocab), merges, dropout, random))


def _segment(word: list[int], merges: Merges, dropout: float, random: Random) -> list[int]:
    """Merge the tokens of one word in place, until no merge is possible, or all that are were left out."""
    while True:
        best: tuple[int, int] | None = None  # rank and merged id
        position = -1
        for i, pair in enumerate(pairwise(word)):
            merge = merges.get(pair)
            # Drawn only for a merge that would win: the draws are independent, so the others' do not matter.
            if merge and (best is None or merge < best) and random.random() >= dropout:
                best, position = merge, i
        if best is None:
            return word
        word[position : position + 2] = [best[1]]
