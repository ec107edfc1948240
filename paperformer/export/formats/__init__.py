"""The formats, each with what writes it and what runs it again."""
