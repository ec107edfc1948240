"""Translating what does not fit: texts longer than a model takes, and files and pipes of any size."""
