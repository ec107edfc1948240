"""Decoding beyond one best translation: n-best lists, ensembles, minimum Bayes risk, terms, prefixes, alignments."""
