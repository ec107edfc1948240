"""The state of a run on the disk, and the weights that are chosen from it."""
