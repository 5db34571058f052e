"""Training on many ranks, and recording what they do."""
