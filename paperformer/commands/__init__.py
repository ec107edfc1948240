"""The commands of the command line, by what they are about; `cli` parses their arguments and calls them."""
