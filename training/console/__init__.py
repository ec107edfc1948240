"""What is said to people: errors of one line, progress, tables."""
