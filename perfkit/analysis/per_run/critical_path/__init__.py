"""The longest path through a run's steps (metrics.md section 16), by what is on it, and drawn."""
