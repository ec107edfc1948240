"""A model over HTTP: requests of many clients in common batches, within limits, each answered or refused on its own."""
