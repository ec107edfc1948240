"""Commands that use a finished model on text, line by line: translate, continue."""
