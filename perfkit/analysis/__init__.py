"""From events to findings. Pure functions over columns; no files, no torch."""
