"""What a step may take of memory."""
