"""What is shown and written down of a run."""
