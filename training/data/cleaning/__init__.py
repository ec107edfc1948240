"""What is left out of the training text, and why."""
