"""Training in parallel, by strategy."""
