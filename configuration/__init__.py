"""Configurations of the model architectures: typed, and validated at construction."""
