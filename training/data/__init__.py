"""Text, from sources to batches."""
