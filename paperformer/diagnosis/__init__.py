"""What is installed, what the machine can do, and what to do about it."""
