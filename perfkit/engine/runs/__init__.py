"""A run, from the summaries of its traces."""
