"""The ranks of a run together."""
