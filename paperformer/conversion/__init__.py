"""Conversion between paperformer's models and architectures of transformers that can compute the same function."""
