"""Model architectures, and the layers that they share: one concept a file."""
