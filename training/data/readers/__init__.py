"""Sources of text, a format a file."""
