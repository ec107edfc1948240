"""Text as it comes in: files, their lines, and the chunks of rows that go on from there."""
