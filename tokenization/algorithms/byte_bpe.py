"""Byte-pair encoding (BPE) on bytes.

BPE (Sennrich et al., 2016, arXiv 1508.07909) starts from single symbols and adds the most frequent pair of
neighbours to the vocabulary, again and again. On bytes instead of characters (Radford et al., 2019, section
2.2) 256 symbols cover every text of every script, so no input is ever unknown.
"""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from ..reserved_tokens import UNK_TOKEN
from ..training_options import TrainingOptions
from .prefix_space import build_strippers


def train_byte_bpe(texts: Iterable[str], options: TrainingOptions) -> Tokenizer:
    """Train a byte-level BPE; see `train_tokenizer`."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNK_TOKEN))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if options.split_digits:
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, tokenizer.pre_tokenizer])
    if options.prefix_space:
        tokenizer.normalizer = normalizers.Prepend(" ")
        tokenizer.decoder = decoders.Sequence([tokenizer.decoder, *build_strippers(options.reserved.user_symbols)])
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocab_size,
        min_frequency=options.min_frequency,
        special_tokens=options.reserved.all,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # all bytes, also those that the corpus lacks
        show_progress=options.show_bar,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer, length=options.length)
    return tokenizer
