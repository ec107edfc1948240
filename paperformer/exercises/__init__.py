"""The exercises of the texts, each one command: a comparison or a measurement, its card and its pictures."""
