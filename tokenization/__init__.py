"""Subword tokenizers, trained from text and saved as plain fast tokenizers."""

from .bpe import train_bpe
from .bpe_dropout import encode_with_bpe_dropout

__all__ = ["encode_with_bpe_dropout", "train_bpe"]
