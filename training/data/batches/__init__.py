"""Batches of an epoch, in an order that depends on seed and epoch alone."""
