"""Subword tokenizers, trained from text and saved as plain fast tokenizers."""

from .bpe_dropout import encode_with_bpe_dropout
from .train import train_tokenizer
from .unigram_sampling import encode_with_unigram_sampling

__all__ = ["encode_with_bpe_dropout", "encode_with_unigram_sampling", "train_tokenizer"]
