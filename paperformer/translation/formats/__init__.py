"""Files of localisation, a format a file: read as records, of which the texts are translated and all else is kept."""
