"""What computes for the server: the interface, and torch behind it."""
