"""Byte-pair encoding (BPE) on characters, with spaces in the tokens and byte fallback.

BPE (Sennrich et al., 2016, arXiv 1508.07909) starts from single symbols and adds the most frequent pair of
neighbours to the vocabulary, again and again.
"""

import json
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, models, trainers

from ..corpus import CharacterCounts
from ..reserved_tokens import UNK_TOKEN
from ..training_options import TrainingOptions
from .byte_fallback import list_base_tokens
from .metaspace import build_metaspace_tokenizer, choose_learned

# Letters, digits or other characters, with the space before them; further white space is a word by itself.
WORD = Regex(r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+")


def train_bpe_with_fallback(texts: Iterable[str], options: TrainingOptions) -> Tokenizer:
    """Train a BPE with byte fallback; see `train_tokenizer`."""
    base = list_base_tokens(options.reserved)
    room = options.vocab_size - len(base)
    counts = CharacterCounts()
    learning = build_metaspace_tokenizer(models.BPE(), WORD, options)
    trainer = trainers.BpeTrainer(
        # A fourth more than wanted, in place of those that turn out to be rare characters. The merges are found in the
        # same order whatever their number, so leaving out the last ones is as if they had not been asked for.
        vocab_size=room + room // 4,
        min_frequency=options.min_frequency,
        show_progress=options.show_bar,
    )
    learning.train_from_iterator(counts.watch(texts), trainer=trainer, length=options.length)
    trained = json.loads(learning.to_str())["model"]
    by_rank = sorted(trained["vocab"], key=trained["vocab"].__getitem__)
    learned = choose_learned(by_rank, counts.frequent(options.min_frequency), base, room)
    vocab = {token: index for index, token in enumerate(base + learned)}
    merges = [(a, b) for a, b in trained["merges"] if a in vocab and b in vocab and a + b in vocab]
    model = models.BPE(vocab=vocab, merges=merges, unk_token=UNK_TOKEN, byte_fallback=True)
    return build_metaspace_tokenizer(model, WORD, options)
