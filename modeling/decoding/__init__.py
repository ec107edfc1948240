"""Decoding: what `generate()` does with a model's predictions, where transformers' own loops cost time."""
