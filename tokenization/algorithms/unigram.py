"""The Unigram language model over subwords, with spaces in the tokens and byte fallback.

Unigram (Kudo, 2018, arXiv 1804.10959, section 3.1) gives each token a probability, independent of its neighbours, and
segments a word so that the product is largest. It starts from many substrings of the texts, and again and again fits
the probabilities by expectation maximisation and leaves out the tokens that the texts' likelihood needs least.
"""

import json
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, models, trainers

from ..corpus import CharacterCounts
from ..reserved_tokens import UNK_ID
from ..training_options import TrainingOptions
from .byte_fallback import list_base_tokens
from .metaspace import build_metaspace_tokenizer, choose_learned

# Not split at punctuation, unlike in BPE: the trainer starts from the substrings that several different words have, and
# would miss "▁world" if there were no "▁world," beside it.
WORD = Regex(r" ?[^\s<]+<?| ?<|\s+(?!\S)|\s+")
SMALLEST_TRAINABLE = 16  # below 10 the trainer may never come to an end
SCORE_DECIMALS = 6  # natural logarithms
SCORE_STEP = 1e-4  # between the characters to which the trainer found no probability


def train_unigram(texts: Iterable[str], options: TrainingOptions) -> Tokenizer:
    """Train a Unigram with byte fallback; see `train_tokenizer`.

    Raises:
        ValueError: The texts have more different characters than the vocabulary has room for.
    """
    base = list_base_tokens(options.reserved)
    room = options.vocab_size - len(base)
    counts = CharacterCounts()
    learning = build_metaspace_tokenizer(models.Unigram(), WORD, options)
    # A tenth more than wanted, in place of those that turn out to be rare characters.
    size = max(room + room // 10, SMALLEST_TRAINABLE)
    trainer = trainers.UnigramTrainer(vocab_size=size, show_progress=options.show_bar)
    try:
        learning.train_from_iterator(counts.watch(texts), trainer=trainer, length=options.length)
    except Exception as error:  # the library has no class of its own for it
        if "not large enough to contain all chars" not in str(error):
            raise
        raise ValueError(
            f"vocab_size is {options.vocab_size}, which leaves {room} tokens beside {options.reserved} and 256 bytes; "
            f"a Unigram of these texts needs more, as they have {len(counts.frequent(1))} different characters"
        ) from error

    scores = _make_reproducible(json.loads(learning.to_str())["model"]["vocab"])
    by_score = sorted(scores, key=lambda token: (-scores[token], token))
    learned = choose_learned(by_score, counts.frequent(options.min_frequency), base, room)
    learned.sort(key=lambda token: (-scores[token], token))
    vocab = [(token, 0.0) for token in base] + [(token, scores[token]) for token in learned]
    return build_metaspace_tokenizer(models.Unigram(vocab, unk_id=UNK_ID, byte_fallback=True), WORD, options)


def _make_reproducible(vocab: list[tuple[str, float | None]]) -> dict[str, float]:
    """Take out of the scores what differs from one training on the same texts to the next.

    The trainer sums probabilities in an order that changes, and those characters to which it found none get the lowest
    score plus a multiple of a small step, in an order that changes, too. They all get the lowest score here.
    """
    scores = {token: score or 0.0 for token, score in vocab}  # None: infinity, if the texts are U+0000 and nothing else
    lowest = min(scores.values())
    margin = SCORE_STEP * sum(len(token) == 1 for token in scores)
    return {
        token: round(lowest if len(token) == 1 and score <= lowest + margin else score, SCORE_DECIMALS)
        for token, score in scores.items()
    }
