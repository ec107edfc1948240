"""Data, batches, training engine and evaluation."""
