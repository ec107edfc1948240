"""Subword regularisation with a Unigram: a segmentation is drawn by its probability, as a regulariser for training.

Kudo, 2018, "Subword Regularization: Improving Neural Network Translation Models with Multiple Subword Candidates",
arXiv 1804.10959, section 3.2. The tokenizer's scores stay as they are, and inference stays deterministic: only training
data passes through here.

Why not `Unigram.alpha` of the tokenizers library (0.23): its random number generator takes no seed, so runs could be
neither repeated nor resumed.
"""

import json
import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from random import Random

from transformers import PreTrainedTokenizerFast

from .algorithms.byte_fallback import spell
from .algorithms.words import encode_by_words

UNKNOWN_PENALTY = 10.0
"""How much less a character without a token scores than the rarest token (natural logarithm); as in the library."""

WORDS_REMEMBERED = 1 << 13

# A token in a word: where it starts; its id, or those of a character's bytes; alpha times its score.
_Arc = tuple[int, list[int], float]
# The tokens that end at one place, and the running sums of the weights of all ways to there by each of them.
_Ending = tuple[list[_Arc], list[float]]


def encode_with_unigram_sampling(
    tokenizer: PreTrainedTokenizerFast, texts: Iterable[str], *, alpha: float, seed: int
) -> list[list[int]]:
    """Encode texts, drawing the segmentation x of each with a probability proportional to P(x) ** alpha.

    P(x) is the product of the tokens' probabilities, and all segmentations take part (the paper's l = infinity), by
    forward filtering and backward sampling.

    Args:
        tokenizer: A Unigram of `train_tokenizer`; it is not changed.
        texts: The texts to encode.
        alpha: How much the probabilities matter: with 0 all segmentations are equally likely, with infinity the result
            is `tokenizer(texts).input_ids`. Usual values are 0.1 to 0.5.
        seed: The same seed gives the same segmentations; take another one each epoch.

    Returns:
        One list of token ids for each text, ended by `</s>` if the tokenizer appends it; not padded, not truncated.

    Raises:
        ValueError: `alpha` is negative or not a number, or the tokenizer's model is not a Unigram with byte fallback.
    """
    if not alpha >= 0:
        raise ValueError(f"alpha is {alpha}, and must be at least 0")
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    if model["type"] != "Unigram":
        raise ValueError(f"Unigram sampling needs a Unigram tokenizer, and this tokenizer's model is {model['type']}")
    if not model["byte_fallback"]:
        raise ValueError("Unigram sampling needs a tokenizer with byte fallback, and this Unigram has none")
    if alpha == math.inf:
        return [tokenizer(text).input_ids for text in texts]
    pieces: list[tuple[str, float]] = model["vocab"]
    vocab = {token: index for index, (token, _) in enumerate(pieces)}
    scores = [alpha * score for _, score in pieces]
    unknown_score = alpha * (min(score for _, score in pieces) - UNKNOWN_PENALTY)
    longest = max(map(len, vocab))

    @lru_cache(maxsize=WORDS_REMEMBERED)
    def build_lattice(word: str) -> list[_Ending]:
        arcs: list[list[_Arc]] = [[] for _ in word]  # by the place where they end
        for start, character in enumerate(word):
            for end in range(start + 1, min(start + longest, len(word)) + 1):
                if (index := vocab.get(word[start:end])) is not None:
                    arcs[end - 1].append((start, [index], scores[index]))
            if character not in vocab:
                arcs[start].append((start, spell(character, vocab), unknown_score))
        return _filter_forward(arcs)

    random = Random(seed)
    return encode_by_words(tokenizer, texts, lambda word: _sample_backward(build_lattice(word), random))


def _filter_forward(arcs: list[list[_Arc]]) -> list[_Ending]:
    """Sum the weights of all ways from the start of the word to each place, token by token."""
    log_sums = [0.0]
    endings = []
    for ending in arcs:
        ways = [log_sums[start] + score for start, _, score in ending]
        most = max(ways)
        cumulative = list(accumulate(math.exp(way - most) for way in ways))
        log_sums.append(most + math.log(cumulative[-1]))
        endings.append((ending, cumulative))
    return endings


def _sample_backward(endings: list[_Ending], random: Random) -> list[int]:
    """Draw the last token of the word, then the one before it, and so on."""
    tokens = []
    end = len(endings)
    while end > 0:
        ending, cumulative = endings[end - 1]
        ((end, ids, _),) = random.choices(ending, cum_weights=cumulative)
        tokens.append(ids)
    return [index for ids in reversed(tokens) for index in ids]
