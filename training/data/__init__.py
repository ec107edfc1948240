"""From files to batches: reading, cleaning, tokenising, caching and batching of corpora."""
