"""Text that ships with the package."""
