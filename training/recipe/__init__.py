"""Recipes: the options of a run, a section a file, and how they are read."""
