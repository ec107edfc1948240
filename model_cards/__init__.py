"""Model cards: the template, and one card with measured results for every recipe that was run."""
