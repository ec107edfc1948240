"""Typed options of a training run, a section of the recipe a file; a field's docstring is its `--help` text."""
